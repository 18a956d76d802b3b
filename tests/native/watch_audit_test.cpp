/// Audit of counters: loads that really move bytes, and simulated counters that count them wrongly.
#include <gtest/gtest.h>
#include <sched.h>

#include <map>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "watch/traffic/audit.hpp"

#include "made_up_kernel.hpp"
#include "temporary_folder.hpp"

namespace {

using namespace mm::watch;

/// One socket with two memory channels, whose CPUs exist on this machine, so that loads can run on them.
struct OneSocket : TemporaryFolder {
  OneSocket() {
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof allowed, &allowed);
    std::string stat, list;
    for (std::size_t cpu = 0, count = 0; cpu < CPU_SETSIZE && count < 2; ++cpu) {
      if (!CPU_ISSET(cpu, &allowed)) continue;
      const std::string n = std::to_string(cpu);
      stat += "cpu" + n + " 1 0 1 1 0 0 0 0\n";
      list += (count++ == 0 ? "" : ",") + n;
      write("sys/devices/system/cpu/cpu" + n + "/topology/physical_package_id", "0");
    }
    write("proc/stat", stat);
    write("proc/cpuinfo", "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n\n");
    write("sys/devices/system/cpu/present", list);
    write("sys/devices/system/cpu/online", list);
    write("sys/devices/system/node/node0/cpulist", list);
    write("sys/devices/system/node/node0/distance", "10");
    for (const std::string n : {"0", "1"}) {
      const std::string imc = "sys/bus/event_source/devices/uncore_imc_" + n + "/";
      write(imc + "type", "2" + n);
      write(imc + "cpumask", list.substr(0, list.find(',')));
      write(imc + "format/event", "config:0-7");
      write(imc + "format/umask", "config:8-15");
      write(imc + "events/clockticks", "event=0x01,umask=0x00");
    }
  }
};

TEST(Audit, SimulatedCountersAreReadTogetherWithTheBytesThatTheLoadsMoved) {
  if (!can_flush()) GTEST_SKIP() << "this processor cannot flush a line";
  const OneSocket tree;
  MadeUpKernel kernel;
  SamplerSettings settings;
  settings.root = tree.path();
  settings.sources = {"counters"};
  settings.kernel = &kernel;
  Sampler sampler(settings);
  const auto loads = audit_loads(sampler.board(), sampler.host());
  ASSERT_EQ(loads.size(), 2U);  // reads and writes; a single socket has no links
  // Reads count twice, writes count right. Both channels get half of the traffic, in lines of 64 B.
  const std::map<std::uint64_t, double> factors{{0xcf00, 2.0}, {0xf000, 1.0}};
  double last_bytes = 0;
  AuditPlan plan;
  plan.rounds = 4;
  plan.load_s = 1.9;
  plan.before_reading = [&](const AuditLoad& load, double bytes) {
    const double grown = bytes < last_bytes ? bytes : bytes - last_bytes;  // every load begins at 0
    last_bytes = bytes;
    kernel.enabled = kernel.running = mm::kernel_ns(CLOCK_MONOTONIC);
    const std::uint64_t counted = load.access == PacedAccess::write_flushed ? 0xf000 : 0xcf00;
    for (auto& [d, e] : kernel.events)
      if ((e.config & 0xff00) == counted) e.value += static_cast<std::uint64_t>(factors.at(counted) * grown / 2 / 64);
  };
  std::map<std::string, double> moved, counted, at_rest;
  std::size_t lines = 0;
  audit(sampler, plan, [&](const std::string& text) {
    const mm::json line = mm::json::parse(text);
    for (const char* key : {"type", "load", "cpu_node", "memory_node", "round", "rate", "moved", "values"})
      ASSERT_TRUE(line.contains(key)) << text;
    const std::string load = line.at("load");
    if (line.at("rate") == 0) at_rest[load] += line.at("moved").get<double>();
    moved[load] += line.at("moved").get<double>();
    for (const mm::json& channel : line.at("values").at("memory." + load)) counted[load] += channel.get<double>();
    ++lines;
  });
  EXPECT_EQ(lines, 2U * 4 * 4);
  // The windows of bytes and counters differ by microseconds, or by more if this thread has to wait for a CPU.
  EXPECT_NEAR(counted.at("read") / moved.at("read"), 2, 0.5);
  EXPECT_NEAR(counted.at("write") / moved.at("write"), 1, 0.25);
  for (const char* load : {"read", "write"}) EXPECT_LT(at_rest.at(load), 0.1 * moved.at(load)) << load;
}

TEST(Audit, WithoutCountersTheReasonIsStated) {
  const TemporaryFolder tree;
  tree.write("proc/cpuinfo", "vendor_id\t: GenuineIntel\nflags\t\t: fpu hypervisor \n\n");
  tree.write("sys/devices/system/cpu/present", "0");
  SamplerSettings settings;
  settings.root = tree.path();
  settings.sources = {"counters", "resctrl"};
  Sampler sampler(settings);
  try {
    audit(sampler, {}, [](const std::string& line) { ADD_FAILURE() << line; });
    ADD_FAILURE() << "nothing was absent";
  } catch (const mm::Absent& absent) {
    EXPECT_EQ(std::string(absent.what()),
              "no counter of memory or link traffic: this is a virtual machine, and the hypervisor exposes no counters "
              "of memory controllers; the processor or the hypervisor does not support bandwidth monitoring");
  }
}

/// Two sockets with a link in each direction: loads across links read the memory of the socket that sends.
TEST(Audit, LoadsAcrossLinksReadTheMemoryOfTheSender) {
  Board board;
  Host host;
  host.nodes = {0, 1};
  for (int n = 0; n < 2; ++n) {
    mm::Node node;
    node.id = n;
    node.cpus = {n};
    host.machine.nodes.push_back(node);
  }
  board.add("link", {{"name", "0 to 1"}, {"from", 0}, {"to", 1}});
  EXPECT_TRUE(audit_loads(board, host).empty());
  board.add({"link.out", "B/s", "sent"});
  const auto loads = audit_loads(board, host);
  ASSERT_EQ(loads.size(), 1U);
  EXPECT_EQ(loads[0].memory_node, 0U);
  EXPECT_EQ(loads[0].cpu_node, 1U);
  EXPECT_EQ(loads[0].access, PacedAccess::read_flushed);
}

}  // namespace
