/// Counters of the sampler: their definitions, groups, and the components of a tree.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>

#include "base/error.hpp"
#include "watch/counters/counters.hpp"
#include "watch/counters/definitions.hpp"
#include "watch/sampler.hpp"

#include "made_up_kernel.hpp"
#include "temporary_folder.hpp"

namespace {

using namespace mm::watch;

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
        {with("\"made up\"", "3"), "f: pmu[0].source: must be a non-empty string"},
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
  const TemporaryFolder pmu;
  pmu.write("format/event", "config:0-7\n");
  pmu.write("format/umask", "config:8-15\n");
  pmu.write("format/wide", "config:4-7,32-35\n");
  pmu.write("format/match", "config1:0-63\n");
  pmu.write("events/cas", "event=0x04,umask=0x03\n");
  pmu.write("events/cas.scale", "6.103515625e-5\n");
  pmu.write("events/cas.unit", "MiB\n");
  const std::string at = pmu.path("");
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
  PmuCounts counts(kernel, 9, 3, {{{1, 0, 0}, 1}, {{2, 0, 0}, 64}, {{3, 0, 0}, 1}});
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
  PmuCounts counts(kernel, 9, 3, {{{1, 0, 0}, 1}});
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
struct TwoSockets : TemporaryFolder {
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
  SamplerSettings settings;
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
  SamplerSettings settings;
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
  const std::size_t header_end = line.find('\n'), frame_end = line.find('\n', header_end + 1);
  EXPECT_EQ(mm::json::parse(line.substr(0, header_end)).at("type"), "header");
  const mm::json values = mm::json::parse(line.substr(header_end + 1, frame_end - header_end - 1)).at("values");
  EXPECT_DOUBLE_EQ(values.at("memory.read")[0].get<double>(), 4.8e9);
  EXPECT_DOUBLE_EQ(values.at("memory.write")[0].get<double>(), 1.6e9);
  EXPECT_TRUE(values.at("memory.busy")[1].is_null());  // a node without a survey, whose clock is not counted
  // Three quarters are reads: 35 GB/s by interpolation, for two channels.
  EXPECT_NEAR(values.at("memory.busy")[0].get<double>(), 6.4 / 17.5, 1e-4);
  EXPECT_EQ(sampler.header().at("denominators").at("memory").at("used"), "attained");
}

TEST(Counters, WhereNoClockIsCountedTheFirmwareSaysTheWire) {
  const TemporaryFolder tree;  // a Kunpeng, whose controllers count no clock
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
  SamplerSettings settings;
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
  PmuCounts counts(real_kernel(), software.type, cpu,
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

}  // namespace
