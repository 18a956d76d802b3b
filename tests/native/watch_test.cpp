/// Parts of the sampler: what it reads, how it writes, and the cost of a slow reader.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <random>

#include "base/error.hpp"
#include "watch/board.hpp"
#include "watch/canary.hpp"
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
  ComponentMetric guessed{"cpu.guess", "s", "a guess"};
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
  SamplerSettings settings;
  Sampler sampler(settings);
  const mm::json header = sampler.header();
  EXPECT_EQ(header.at("type"), "header");
  EXPECT_GE(header.at("components").at("cpu").size(), 1U);
  for (const auto& metric : header.at("metrics")) {
    const std::string name = metric.at("name");
    EXPECT_TRUE(header.at("components").contains(name.substr(0, name.find('.')))) << name;
  }
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
