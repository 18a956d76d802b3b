/// Parts of the sampler: what it reads, how it writes, and the cost of a slow reader.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "base/error.hpp"
#include "sys/files.hpp"
#include "watch/board.hpp"
#include "watch/canary.hpp"
#include "watch/counters.hpp"
#include "watch/definitions.hpp"
#include "watch/sampler.hpp"
#include "watch/utilisation.hpp"

namespace {

using namespace mm::watch;

TEST(Watch, ARateIsKnownOnlyBetweenTwoValuesThatGrow) {
  Rate rate;
  EXPECT_TRUE(std::isnan(rate.of(10, 1)));
  EXPECT_DOUBLE_EQ(rate.of(30, 3), 10);
  EXPECT_TRUE(std::isnan(rate.of(5, 4)));  // a decrease: the counter restarted
  EXPECT_DOUBLE_EQ(rate.of(9, 6), 2);
  EXPECT_TRUE(std::isnan(rate.of(kUnknown, 7)));
  EXPECT_TRUE(std::isnan(rate.of(100, 8)));
  EXPECT_TRUE(std::isnan(rate.of(200, 8)));  // no time has passed
}

TEST(Watch, UnknownIsWrittenAsNullAndNeverAsZero) {
  Board board;
  board.add("cpu", {{"name", "CPU 0"}});
  board.add("cpu", {{"name", "CPU 1"}});
  const auto busy = board.add({"cpu.busy", "1", "busy", "time"}), moved = board.add({"cpu.moved", "B/s", "moved"});
  board.set(busy, 0, 0.123456);
  board.set(moved, 1, 12345678901.9);
  std::string line;
  board.write_values(line);
  EXPECT_EQ(line, R"("values":{"cpu.busy":[0.1235,null],"cpu.moved":[null,12345678901]})");
  board.set(moved, 0, 1e300);
  board.set(moved, 1, -2.5);
  board.forget(busy, busy + 1);
  line.clear();
  board.write_values(line);
  EXPECT_EQ(line, R"("values":{"cpu.busy":[null,null],"cpu.moved":[9000000000000000000,-2.5]})");
  board.set(busy, 7, 1);  // not a component
}

TEST(Watch, AMetricThatTwoSourcesSayHasAPlaceForAllComponents) {
  Board board;
  board.add("io", {{"name", "stack"}});
  const auto first = board.add({"io.in", "B/s", "by one"});
  const auto other = board.add({"io.out", "B/s", "by one"});
  board.add("io", {{"name", "disk"}});
  EXPECT_EQ(board.add({"io.in", "B/s", "by another"}), first);
  board.set(first, 0, 1);
  board.set(first, 1, 2);
  board.set(other, 0, 3);
  std::string line;
  board.write_values(line);
  EXPECT_EQ(line, R"("values":{"io.in":[1,2],"io.out":[3]})");
  board.forget(0, 1);
  EXPECT_TRUE(std::isnan(board.at(first, 1)));
  EXPECT_EQ(board.at(other, 0), 3);
}

TEST(Watch, NumbersAreAsLongAsTheirUnitNeeds) {
  Board board;
  for (int i = 0; i < 7; ++i) board.add("node", {{"name", i}});
  const auto rate = board.add({"node.rate", "B/s", "moved"}), plain = board.add({"node.ratio", "1", "a ratio"});
  const auto share = board.add({"node.busy", "1", "busy", "time"});
  const double values[] = {0, 999.9994, 1000, -1000.9, 1.23456789e-5, 999999.5, -0.5};
  for (std::size_t i = 0; i < 7; ++i) board.set(rate, i, values[i]);
  board.set(plain, 0, 0.123456789);
  board.set(plain, 1, INFINITY);
  board.set(share, 0, 0.99996);
  board.set(share, 1, 0.00004);
  board.note("at", "[1,2]");
  std::string line = "{";
  board.write_values(line);
  EXPECT_EQ(line, R"({"values":{"node.rate":[0,999.999,1000,-1000,1.23457e-05,999999,-0.5],)"
                  R"("node.ratio":[0.123457,null,null,null,null,null,null],)"
                  R"("node.busy":[1,0,null,null,null,null,null]},"at":[1,2])");
}

TEST(Watch, TheHeaderDescribesComponentsMetricsAndWhatIsAbsent) {
  Board board;
  EXPECT_EQ(board.components("cpu"), 0U);
  EXPECT_EQ(board.add("cpu", {{"name", "CPU 0"}}), 0U);
  EXPECT_EQ(board.add("cpu", {{"name", "CPU 1"}}), 1U);
  EXPECT_EQ(board.components("cpu"), 2U);
  EXPECT_EQ(board.component("cpu", 1).at("name"), "CPU 1");
  Metric guessed{"cpu.guess", "s", "a guess"};
  guessed.estimated = true;
  EXPECT_EQ(board.add({"cpu.busy", "1", "busy", "time"}), 0U);
  EXPECT_EQ(board.add(guessed), 1U);
  EXPECT_EQ(board.find("cpu.guess"), 1U);
  EXPECT_EQ(board.find("cpu.other"), kNone);
  board.absent("cpu.power", "no meter", "buy one");
  board.absent("cpu.heat", "no sensor");
  ASSERT_NE(board.absence("cpu.heat"), nullptr);
  EXPECT_EQ(board.absence("cpu.heat")->at("why"), "no sensor");
  EXPECT_EQ(board.absence("cpu.busy"), nullptr);
  board.set_header("rate", 3);
  const mm::json expected = mm::json::parse(R"({
      "components": {"cpu": [{"name": "CPU 0"}, {"name": "CPU 1"}]},
      "metrics": [{"name": "cpu.busy", "unit": "1", "what": "busy", "of": "time"},
                  {"name": "cpu.guess", "unit": "s", "what": "a guess", "estimated": true}],
      "absent": [{"metric": "cpu.power", "why": "no meter", "hint": "buy one"},
                 {"metric": "cpu.heat", "why": "no sensor"}],
      "rate": 3})");
  EXPECT_EQ(board.header(), expected);
}

/// A board with memory controllers on two nodes, of OS numbers 4 and 6: two on the first, one on the second.
struct Controllers {
  Board board;
  Host host;
  std::size_t read, write;
  Controllers() {
    for (const int node : {0, 0, 1}) board.add("memory", {{"name", "memory"}, {"node", node}});
    read = board.add({"memory.read", "B/s", "read"});
    write = board.add({"memory.write", "B/s", "written"});
    host.nodes = {4, 6};
  }
  void move(std::size_t component, double reads, double writes) {
    board.set(read, component, reads);
    board.set(write, component, writes);
  }
  double busy(std::size_t component) { return board.at(board.find("memory.busy"), component); }
};

const std::vector<std::string> kMoved = {"memory.read", "memory.write"};

TEST(Utilisation, IsAShareOfWhatASurveySustainedAtTheSameMix) {
  Controllers c;
  // Of node 4: 80 B/s of reads alone, 40 at one half, for two controllers. Nothing of node 6.
  c.host.sustained = mm::json::parse(R"({"memory": {"4": [[1.0, 80], [0.5, 40]]}, "from": "a night"})");
  const Utilisation use(c.board, c.host, "memory", kMoved);
  EXPECT_EQ(use.denominator().at("used"), "attained");
  EXPECT_EQ(use.denominator().at("attained"), mm::json::parse("[40, 40, null]"));
  EXPECT_EQ(use.denominator().at("from").at("attained"), "a night");
  EXPECT_EQ(c.board.metrics()[c.board.find("memory.busy")].of, "sustained here, by a night");
  c.move(0, 20, 0);
  c.move(1, 7.5, 2.5);
  c.move(2, 1, 1);
  use.sample(c.board);
  EXPECT_DOUBLE_EQ(c.busy(0), 0.5);        // reads alone: of 40
  EXPECT_DOUBLE_EQ(c.busy(1), 10.0 / 30);  // three quarters: between 20 and 40
  EXPECT_TRUE(std::isnan(c.busy(2)));      // the other node was not surveyed
  c.move(0, 2, 8);
  c.move(1, 0, 0);
  use.sample(c.board);
  EXPECT_DOUBLE_EQ(c.busy(0), 0.5);  // fewer reads than the survey had: its lowest mix, 20
  EXPECT_DOUBLE_EQ(c.busy(1), 0);
}

TEST(Utilisation, IsAShareOfThePeakWhereNobodySurveyed) {
  Controllers firmware;
  firmware.host.sustained = mm::json::parse(R"({"wire": {"memory": 300}})");
  const Utilisation by_firmware(firmware.board, firmware.host, "memory", kMoved);
  EXPECT_EQ(by_firmware.denominator().at("used"), "wire");
  EXPECT_EQ(by_firmware.denominator().at("wire"), mm::json::parse("[100.0, 100.0, 100.0]"));
  EXPECT_EQ(firmware.board.metrics()[firmware.board.find("memory.busy")].of, "theoretical peak");
  firmware.move(1, 20, 30);
  by_firmware.sample(firmware.board);
  EXPECT_DOUBLE_EQ(firmware.busy(1), 0.5);

  Controllers clocked;
  const auto wire = clocked.board.add({"memory.wire", "B/s", "by its clock"});
  clocked.host.sustained = firmware.host.sustained;
  const Utilisation by_clock(clocked.board, clocked.host, "memory", kMoved);
  EXPECT_FALSE(by_clock.denominator().contains("wire"));
  EXPECT_EQ(by_clock.denominator().at("from").at("wire"), "by its clock");
  clocked.board.set(wire, 0, 200);
  clocked.board.set(wire, 1, 0);
  clocked.move(0, 20, 30);
  clocked.move(1, 20, 30);
  by_clock.sample(clocked.board);
  EXPECT_DOUBLE_EQ(clocked.busy(0), 0.25);
  EXPECT_TRUE(std::isnan(clocked.busy(1))) << "of nothing there is no share";
}

TEST(Utilisation, IsAbsentWithAReasonOrLeftToWhoReportsIt) {
  Controllers unknown;
  Utilisation none(unknown.board, unknown.host, "memory", kMoved);
  EXPECT_EQ(unknown.board.find("memory.busy"), kNone);
  ASSERT_NE(unknown.board.absence("memory.busy"), nullptr);
  EXPECT_EQ(unknown.board.absence("memory.busy")->at("hint"), "meshmark survey");
  EXPECT_TRUE(none.denominator().is_null());
  none.sample(unknown.board);

  Controllers reported;
  reported.board.add({"memory.busy", "1", "by the hardware", "time"});
  reported.host.sustained = mm::json::parse(R"({"wire": {"memory": 300}})");
  const Utilisation left(reported.board, reported.host, "memory", kMoved);
  EXPECT_TRUE(left.denominator().is_null());
  reported.move(0, 1, 1);
  left.sample(reported.board);
  EXPECT_TRUE(std::isnan(reported.busy(0)));

  Controllers unmoved;
  unmoved.host.sustained = reported.host.sustained;
  const Utilisation nothing(unmoved.board, unmoved.host, "memory", {"memory.other"});
  EXPECT_EQ(unmoved.board.find("memory.busy"), kNone);
  EXPECT_EQ(unmoved.board.absence("memory.busy"), nullptr);
}

TEST(Utilisation, OfWhatIsAbsentTheReasonIsThatOfItsParts) {
  Host host;
  host.nodes = {0, 1};
  Board parts;
  parts.absent("memory.read", "not permitted", "as root");
  parts.absent("link.out", "no such counter");
  explain_unknown_use(host, parts);
  EXPECT_EQ(parts.absence("memory.busy")->at("why"), "not permitted");
  EXPECT_EQ(parts.absence("memory.busy")->at("hint"), "as root");
  EXPECT_EQ(parts.absence("link.busy")->at("why"), "no such counter");
  EXPECT_FALSE(parts.absence("link.busy")->contains("hint"));

  Board bare;
  explain_unknown_use(host, bare);
  EXPECT_EQ(bare.absence("memory.busy")->at("hint"), "meshmark doctor");
  EXPECT_NE(std::string(bare.absence("link.busy")->at("why")).find("exposes for links"), std::string::npos);

  host.cpuinfo = "flags : fpu hypervisor sse\n";
  host.nodes = {0};
  Board guest;
  explain_unknown_use(host, guest);
  EXPECT_NE(std::string(guest.absence("memory.busy")->at("why")).find("hypervisor"), std::string::npos);
  EXPECT_FALSE(guest.absence("memory.busy")->contains("hint"));
  EXPECT_EQ(guest.absence("link.busy"), nullptr) << "one node has no links";

  Board known;
  known.add("memory", {{"name", "memory"}});
  known.add({"memory.busy", "1", "busy", "time"});
  known.absent("link.busy", "told before");
  explain_unknown_use(host, known);
  EXPECT_EQ(known.absence("memory.busy"), nullptr);
  EXPECT_EQ(known.absence("link.busy")->at("why"), "told before");
}

TEST(Watch, ASlowReaderLosesWholeLines) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  {
    Outlet out(ends[1]);
    const std::string line(1000, 'a');
    int taken = 0;
    for (int i = 0; i < 200; ++i) taken += out.line(line + "\n");
    EXPECT_EQ(out.dropped(), static_cast<std::uint64_t>(200 - taken));
    EXPECT_GT(out.dropped(), 0U);
    std::string got(1 << 20, '\0');
    const ssize_t n = ::read(ends[0], got.data(), got.size());
    ASSERT_GT(n, 0);
    got.resize(static_cast<std::size_t>(n));
    EXPECT_TRUE(out.line("b\n"));  // the rest of the last line goes first
    got.resize(got.size() + (1 << 16));
    const ssize_t more = ::read(ends[0], got.data() + n, 1 << 16);
    ASSERT_GT(more, 0);
    got.resize(static_cast<std::size_t>(n + more));
    EXPECT_EQ(got.size() % 1001, 2U);
    EXPECT_TRUE(got.ends_with("a\nb\n"));
    ::close(ends[0]);
    std::signal(SIGPIPE, SIG_IGN);
    out.line("c\n");
    EXPECT_TRUE(out.gone());
  }
  ::close(ends[1]);
}

TEST(Watch, EveryMetricIsOfAClassThatIsThere) {
  Settings settings;
  Sampler sampler(settings);
  const mm::json header = sampler.header();
  EXPECT_EQ(header.at("type"), "header");
  EXPECT_GE(header.at("components").at("cpu").size(), 1U);
  for (const auto& metric : header.at("metrics")) {
    const std::string name = metric.at("name");
    EXPECT_TRUE(header.at("components").contains(name.substr(0, name.find('.')))) << name;
  }
}

/// A folder with files, removed at the end.
class Folder {
 public:
  Folder() {
    std::string form = std::filesystem::temp_directory_path() / "mm-tree-XXXXXX";
    path_ = ::mkdtemp(form.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path_ + "/" + name).parent_path());
    std::ofstream(path_ + "/" + name) << text;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Counters with values set by a test.
class MadeUpKernel : public Kernel {
 public:
  struct Event {
    std::uint64_t type, config, value = 0;
    int cpu, leader;
    bool open = true;
  };
  std::map<int, Event> events;
  std::uint64_t enabled = 0, running = 0;  ///< ns, of all groups
  std::size_t max_per_group = 99;          ///< events per group
  int refuse = 0;                          ///< errno
  int opened = 0;
  std::set<int> read_leaders;              ///< leaders that were read
  std::function<void()> between_readings;  ///< called once, before a leader is read again

  int open(perf_event_attr& a, int cpu, int leader) override {
    if (refuse != 0) return -refuse;
    std::size_t mates = 1;
    for (const auto& [d, e] : events) mates += e.open && leader >= 0 && (d == leader || e.leader == leader);
    if (mates > max_per_group) return -EINVAL;
    const int d = 100 + opened++;
    events[d] = {a.type, a.config, 0, cpu, leader, true};
    return d;
  }
  long read(int d, void* into, std::size_t bytes) override {
    if (!read_leaders.insert(d).second && between_readings) {
      between_readings();
      between_readings = nullptr;
    }
    std::vector<std::uint64_t> said{0, enabled, running};
    for (const auto& [other, e] : events)
      if (e.open && (other == d || e.leader == d)) said.push_back(e.value), ++said[0];
    if (said.size() * 8 > bytes) return -1;
    std::copy(said.begin(), said.end(), static_cast<std::uint64_t*>(into));
    return static_cast<long>(said.size() * 8);
  }
  void close(int d) override { events.at(d).open = false; }
  std::uint64_t& value(int d) { return events.at(d).value; }
};

TEST(Counters, DefinitionsAreReadAndEachMistakeIsNamed) {
  const std::string good = R"(
[[pmu]]
device = "uncore_imc_*"
component = "memory"
label = "memory {index}"
source = "made up"
  [[pmu.event]]
  name = "reads"
  use = "cas"
  terms = "event=4"
  scale = 64
  [[pmu.metric]]
  name = "memory.read"
  unit = "B/s"
  what = "read"
  sum = { reads = 1.5 }
)";
  const auto found = parse_definitions(good, "f");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].events[0].scale, 64);
  EXPECT_EQ(found[0].metrics[0].sum, (WeightedSum{{0, 1.5}}));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const auto& [text, said] :
       {std::pair{with("device =", "devices ="), "f: pmu[0].devices: is unknown"},
        {with("\"made up\"", "3"), "f: pmu[0].source: must be a text that is not empty"},
        {with("reads = 1.5", "writes = 1"),
         "f: pmu[0].metric[0].sum: names 'writes', which is not an event of this PMU"},
        {with("memory.read", "cpu.read"), "f: pmu[0].metric[0].name: found 'cpu.read'; it must start with 'memory.'"},
        {with("scale = 64", "scale = \"x\""), "f: pmu[0].event[0].scale: must be a number"},
        {with("label =", "label"), "f: line 5:"}}) {
    try {
      parse_definitions(text, "f");
      ADD_FAILURE() << said;
    } catch (const mm::Failure& wrong) {
      EXPECT_TRUE(std::string(wrong.what()).starts_with(said)) << wrong.what();
    }
  }
}

TEST(Counters, EveryBuiltInDefinitionIsSound) {
  EXPECT_GE(built_in_definitions().size(), 1U);
  for (const PmuDefinition& d : built_in_definitions()) EXPECT_FALSE(d.metrics.empty()) << d.file << " " << d.device;
}

TEST(Counters, NamesHaveForms) {
  EXPECT_TRUE(matches("uncore_imc_3", "uncore_imc_*"));
  EXPECT_TRUE(matches("cpu", "cpu"));
  EXPECT_FALSE(matches("cpu_core", "cpu"));
  EXPECT_TRUE(matches("hisi_sccl1_ddrc0", "hisi_sccl*_ddrc*"));
  EXPECT_FALSE(matches("hisi_sccl1_hha0", "hisi_sccl*_ddrc*"));
}

TEST(Counters, TermsGoToTheBitsOfTheFormat) {
  const Folder pmu;
  pmu.write("format/event", "config:0-7\n");
  pmu.write("format/umask", "config:8-15\n");
  pmu.write("format/wide", "config:4-7,32-35\n");
  pmu.write("format/match", "config1:0-63\n");
  pmu.write("events/cas", "event=0x04,umask=0x03\n");
  pmu.write("events/cas.scale", "6.103515625e-5\n");
  pmu.write("events/cas.unit", "MiB\n");
  const std::string at = pmu.path() + "/";
  EXPECT_EQ(encode(at, "event=0x4,umask=0x3")->config[0], 0x304U);
  EXPECT_EQ(encode(at, "wide=0xab")->config[0], 0xa000000b0U);
  EXPECT_EQ(encode(at, "match=0xffffffffffffffff")->config[1], ~std::uint64_t{0});
  EXPECT_EQ(encode(at, "config=3")->config[0], 3U);
  for (const char* wrong : {"event=0x100", "nonsense=1", "event=x", "../event=1", "=4"})
    EXPECT_FALSE(encode(at, wrong)) << wrong;
  EXPECT_DOUBLE_EQ(encode(at, EventDefinition{"r", "cas", "event=9", 7})->scale,
                   64);  // the Linux kernel's scale takes precedence
  EXPECT_EQ(encode(at, EventDefinition{"r", "other", "event=9", 7})->config[0], 9U);
  EXPECT_EQ(encode(at, EventDefinition{"r", "other", "event=9", 7})->scale, 7);
  EXPECT_FALSE(encode(at, EventDefinition{"r", "other", "", 1}));
}

TEST(Counters, AGroupThatDoesNotFitTakesTurnsAndIsExtrapolated) {
  MadeUpKernel kernel;
  kernel.max_per_group = 2;
  Counts counts(kernel, 9, 3, {{{1, 0, 0}, 1}, {{2, 0, 0}, 64}, {{3, 0, 0}, 1}});
  EXPECT_EQ(counts.open(), 0);
  ASSERT_EQ(kernel.events.size(), 3U);
  EXPECT_EQ(kernel.events.at(101).leader, 100);
  EXPECT_EQ(kernel.events.at(102).leader, -1);
  kernel.enabled = kernel.running = 1'000'000'000;
  counts.read(1);
  EXPECT_TRUE(std::isnan(counts.grown(0)));  // the first reading is only stored
  kernel.enabled = 3'000'000'000;
  kernel.running = 2'000'000'000;  // half of the time
  kernel.value(100) = 10;
  kernel.value(101) = 5;
  counts.read(3);
  EXPECT_DOUBLE_EQ(counts.grown(0), 20);
  EXPECT_DOUBLE_EQ(counts.grown(1), 640);
  EXPECT_DOUBLE_EQ(counts.grown(2), 0);
  EXPECT_DOUBLE_EQ(counts.window(1), 2);
  EXPECT_DOUBLE_EQ(counts.counted(), 0.5);
  kernel.enabled += 1'000'000'000;  // it was never scheduled: that is unknown, not zero
  counts.read(4);
  EXPECT_TRUE(std::isnan(counts.grown(0)));
  EXPECT_DOUBLE_EQ(counts.counted(), 0);
}

TEST(Counters, WhatStoppedCountingIsOpenedAnewAndNeverZero) {
  MadeUpKernel kernel;
  Counts counts(kernel, 9, 3, {{{1, 0, 0}, 1}});
  EXPECT_EQ(counts.open(), 0);
  kernel.enabled = kernel.running = 10;
  EXPECT_TRUE(counts.read(10));
  kernel.enabled = kernel.running = 20;
  EXPECT_TRUE(counts.read(11));
  EXPECT_DOUBLE_EQ(counts.grown(0), 0);
  EXPECT_FALSE(counts.read(12));  // its CPU went offline
  EXPECT_TRUE(std::isnan(counts.grown(0)));
  EXPECT_EQ(kernel.opened, 2);
  EXPECT_FALSE(kernel.events.at(100).open);
  kernel.refuse = ENODEV;
  for (int t = 13; t < 17; ++t) {
    EXPECT_FALSE(counts.read(t));
    EXPECT_TRUE(std::isnan(counts.grown(0)));
  }
  kernel.refuse = 0;  // it is back online
  kernel.enabled = kernel.running = 1'000;
  EXPECT_FALSE(counts.read(17));
  kernel.enabled = kernel.running = 2'000;
  kernel.value(102) = 7;
  EXPECT_TRUE(counts.read(18));
  EXPECT_DOUBLE_EQ(counts.grown(0), 7);
}

/// Two sockets with two channels and a link, in the Linux kernel's format; the counters are invented.
struct TwoSockets : Folder {
  TwoSockets() {
    write("proc/stat", "cpu0 1 0 1 1 0 0 0 0\ncpu1 1 0 1 1 0 0 0 0\n");
    write("proc/cpuinfo", "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n\n");
    write("sys/devices/system/cpu/present", "0-1");
    for (const std::string n : {"0", "1"}) {
      write("sys/devices/system/cpu/cpu" + n + "/topology/physical_package_id", n);
      write("sys/devices/system/node/node" + n + "/cpulist", n);
      write("sys/devices/system/node/node" + n + "/distance", n == "0" ? "10 21" : "21 10");
      const std::string imc = "sys/bus/event_source/devices/uncore_imc_" + n + "/",
                        upi = "sys/bus/event_source/devices/uncore_upi_" + n + "/";
      for (const std::string& at : {imc, upi}) {
        write(at + "cpumask", "0-1");
        write(at + "format/event", "config:0-7");
        write(at + "format/umask", "config:8-15");
        write(at + "format/umask_ext", "config:32-55");
      }
      write(imc + "type", n == "0" ? "20" : "21");
      write(upi + "type", n == "0" ? "30" : "31");
      for (const auto& [alias, terms] :
           {std::pair{"cas_count_read", "event=0x05,umask=0xcf"}, {"cas_count_write", "event=0x05,umask=0xf0"}}) {
        write(imc + "events/" + alias, terms);
        write(imc + "events/" + alias + ".scale", "6.103515625e-5");
        write(imc + "events/" + alias + ".unit", "MiB");
      }
      write(imc + "events/clockticks", "event=0x01,umask=0x00");
      write("sys/devices/uncore_upi_" + n + "/die0", "upi_" + n + ",die_1");
      write("sys/devices/uncore_upi_" + n + "/die1", "upi_" + n + ",die_0");
    }
  }
};

TEST(Counters, ChannelsAndLinksOfATreeAreComponentsWithTheirEnds) {
  const TwoSockets tree;
  Settings settings;
  settings.root = tree.path();
  const mm::json header = Sampler(settings).header();
  const mm::json& channels = header.at("components").at("memory");
  ASSERT_EQ(channels.size(), 4U);
  for (std::size_t c = 0; c < 4; ++c) EXPECT_EQ(channels[c].at("node"), c % 2);
  const mm::json& links = header.at("components").at("link");
  ASSERT_EQ(links.size(), 4U);
  for (const mm::json& link : links) EXPECT_EQ(link.at("from").get<int>(), 1 - link.at("to").get<int>());
  bool said = false;
  for (const mm::json& one : header.at("absent"))
    said = said || (one.at("metric") == "memory.busy" && one.at("why") == "a recorded tree has no counters to read");
  EXPECT_TRUE(said) << header.at("absent");
}

TEST(Counters, WhatChannelsMovedIsAShareOfWhatTheyAttainedAtThatMix) {
  const TwoSockets tree;
  MadeUpKernel kernel;
  Settings settings;
  settings.root = tree.path();
  settings.sources = {"counters"};
  settings.kernel = &kernel;
  settings.period_s = 0.02;
  settings.duration_s = 0.03;
  // Node 0: 40 GB/s of reads only, 20 of writes only; node 1 has no survey, but a theoretical peak.
  settings.sustained = {{"from", "a test"}, {"memory", {{"0", {{1.0, 40e9}, {0.0, 20e9}}}}}};
  Sampler sampler(settings);
  kernel.enabled = kernel.running = 1'000'000'000;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  Outlet out(ends[1]);
  std::atomic<bool> stop = false;
  kernel.between_readings = [&] {
    kernel.enabled = kernel.running = 2'000'000'000;
    for (auto& [d, e] : kernel.events)
      if (e.type == 20 && e.cpu == 0)
        e.value += (e.config & 0xff00) == 0xcf00 ? 75'000'000 : (e.config & 0xff00) == 0xf000 ? 25'000'000 : 0;
  };
  sampler.run(out, stop);
  std::string line(1 << 16, '\0');
  line.resize(static_cast<std::size_t>(::read(ends[0], line.data(), line.size())));
  ::close(ends[0]);
  ::close(ends[1]);
  const mm::json values = mm::json::parse(line.substr(0, line.find('\n'))).at("values");
  EXPECT_DOUBLE_EQ(values.at("memory.read")[0].get<double>(), 4.8e9);
  EXPECT_DOUBLE_EQ(values.at("memory.write")[0].get<double>(), 1.6e9);
  EXPECT_TRUE(values.at("memory.busy")[1].is_null());  // a node without a survey, whose clock is not counted
  // Three quarters are reads: 35 GB/s by interpolation, for two channels.
  EXPECT_NEAR(values.at("memory.busy")[0].get<double>(), 6.4 / 17.5, 1e-4);
  EXPECT_EQ(sampler.header().at("denominators").at("memory").at("used"), "attained");
}

TEST(Counters, WhereNoClockIsCountedTheFirmwareSaysTheWire) {
  const Folder tree;  // a Kunpeng, whose controllers count no clock
  tree.write("proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x48\nCPU part\t: 0xd01\n\n");
  tree.write("sys/devices/system/cpu/present", "0");
  for (const std::string n : {"0", "1"}) {
    const std::string pmu = "sys/bus/event_source/devices/hisi_sccl1_ddrc" + n + "/";
    tree.write(pmu + "type", "4" + n);
    tree.write(pmu + "cpumask", "0");
    tree.write(pmu + "format/event", "config:0-4");
    tree.write(pmu + "events/flux_rd", "config=0x1");
    tree.write(pmu + "events/flux_wr", "config=0x0");
  }
  Settings settings;
  settings.root = tree.path();
  settings.sources = {"counters"};
  MadeUpKernel kernel;
  settings.kernel = &kernel;
  EXPECT_FALSE(Sampler(settings).header().contains("denominators"));  // the bandwidth of a channel is unknown
  settings.sustained = {{"wire", {{"memory", 40e9}}}};
  const mm::json said = Sampler(settings).header().at("denominators").at("memory");
  EXPECT_EQ(said.at("used"), "wire");
  EXPECT_EQ(said.at("wire"), mm::json({20e9, 20e9}));
}

TEST(Counters, TheKernelCountsTheFaultsThatWereMade) {
  const Pmu software{"software", "/sys/bus/event_source/devices/software/", 1, {}};
  cpu_set_t one{}, before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int cpu = 0;
  while (!CPU_ISSET(static_cast<std::size_t>(cpu), &before)) ++cpu;
  CPU_SET(static_cast<std::size_t>(cpu), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  Counts counts(real_kernel(), software.type, cpu,
                {*encode(software.folder, "config=2"), *encode(software.folder, "config=3")});
  const int wrong = counts.open();
  if (wrong == EACCES || wrong == EPERM) GTEST_SKIP() << "not allowed to count";
  ASSERT_EQ(wrong, 0);
  counts.read(0);
  constexpr std::size_t kPages = 500;
  void* const made = ::mmap(nullptr, kPages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(made, MAP_FAILED);
  ::madvise(made, kPages * 4096, MADV_NOHUGEPAGE);
  for (std::size_t p = 0; p < kPages; ++p) static_cast<volatile char*>(made)[p * 4096] = 1;
  EXPECT_TRUE(counts.read(1));
  ::munmap(made, kPages * 4096);
  sched_setaffinity(0, sizeof before, &before);
  EXPECT_GE(counts.grown(0), kPages);
  EXPECT_LT(counts.grown(0), 20 * kPages);  // faults of others count too
  EXPECT_GT(counts.window(0), 0);
  EXPECT_DOUBLE_EQ(counts.counted(), 1);
}

/// Memory as a server of 40 GB/s with random requests: a load waits as in M/D/1 (Kleinrock, Queueing Systems I).
double queued(double traffic) {
  const double full = traffic / 40e9, service = 64 / 40e9;
  return 100e-9 + 8 * service * full / (2 * (1 - full));
}

TEST(Canary, TrafficComesBackFromLatenciesThatItMade) {
  std::mt19937 random(1);
  std::normal_distribution<double> scatter(1, 0.02);
  mm::json points = mm::json::array();
  for (int k = 0; k <= 19; ++k) {
    const double traffic = 2e9 * k, latency = queued(traffic);
    points.push_back({traffic, 0.999 * latency, latency, 1.001 * latency});
  }
  const LoadedCurve curve(points);
  EXPECT_TRUE(curve.shows_traffic());
  int inside = 0, tried = 0;
  for (const double traffic : {20e9, 25e9, 30e9, 33e9, 36e9}) {
    std::vector<double> walks(32);
    double worst = 0;
    for (int trial = 0; trial < 40; ++trial) {
      for (double& w : walks) w = queued(traffic) * scatter(random);
      std::sort(walks.begin(), walks.end());
      const auto found = curve.traffic(walks[10], walks[16], walks[22]);
      EXPECT_LE(found.low, found.middle);
      EXPECT_LE(found.middle, found.high);
      inside += found.low <= traffic && traffic <= found.high;
      ++tried;
      worst = std::max(worst, std::abs(found.middle / traffic - 1));
    }
    EXPECT_LT(worst, 0.15) << traffic;
  }
  EXPECT_GE(inside, tried * 9 / 10);
}

TEST(Canary, WhereTrafficDoesNotShowTheIntervalIsAllOfIt) {
  mm::json points = mm::json::array();
  for (int k = 0; k <= 10; ++k) points.push_back({2e9 * k, 118e-9, 119e-9, 120e-9});
  const LoadedCurve flat(points);
  EXPECT_FALSE(flat.shows_traffic());
  const auto found = flat.traffic(118.5e-9, 119e-9, 119.5e-9);
  EXPECT_EQ(found.low, 0);
  EXPECT_EQ(found.high, 20e9);
  const auto below = flat.traffic(100e-9, 101e-9, 102e-9);  // below the calibrated range: no traffic
  EXPECT_EQ(below.high, 0);
}

TEST(Canary, ACalibrationSaysWhetherItsCurveTells) {
  cpu_set_t before, two{};
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&two) < 2; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &two);
  sched_setaffinity(0, sizeof two, &two);  // one stream suffices on any host
  Board board;
  const Host host = find_host("", board);
  mm::json made;
  std::string why;
  try {
    made = calibrate(host, 2, 0.05);
  } catch (const mm::Absent& absent) {
    why = absent.what();
  }
  sched_setaffinity(0, sizeof before, &before);
  if (made.is_null()) GTEST_SKIP() << why;
  for (const auto& [node, points] : made.at("nodes").items())
    EXPECT_EQ(made.at("tells").at(node), LoadedCurve(points).shows_traffic()) << points;
}

TEST(Canary, ACurveThatIsNoneIsRefused) {
  for (const char* wrong : {"3", "[[1]]", "[[0,1,1,1],[0,1,1,1]]", "[[0,2,1,3]]", "[[0,1,\"x\",1]]", "[[-1,1,1,1]]"})
    EXPECT_THROW(LoadedCurve(mm::json::parse(wrong)), mm::Failure) << wrong;
  EXPECT_FALSE(LoadedCurve(mm::json::array()));
}

}  // namespace
