/// The words for the part of a machine in which CPUs and memory are.
#include "base/topology/parts.hpp"

#include <gtest/gtest.h>

namespace {

using mm::Machine, mm::machine_of, mm::smallest_part, mm::filled_part, mm::memory_place, mm::level_of;

// Two sockets of two nodes, each with one L3, two cores of two CPUs.
Machine large() { return machine_of("pack:2 node:2 l3:1 core:2 pu:2"); }
Machine small() { return machine_of("pack:1 [numa] core:2 pu:1"); }

TEST(Parts, AreTheSmallestThatContainTheCpus) {
  const Machine machine = large();
  EXPECT_EQ(smallest_part(machine, {3}), "cpu");
  EXPECT_EQ(smallest_part(machine, {0, 1}), "core");
  EXPECT_EQ(smallest_part(machine, {2, 0}), "cache");
  EXPECT_EQ(smallest_part(machine, {0, 4}), "socket");
  EXPECT_EQ(smallest_part(machine, {0, 8}), "machine");
  EXPECT_EQ(smallest_part(machine, {}), "");
  EXPECT_EQ(smallest_part(machine, {99}), "");
}

TEST(Parts, AreFilledByOneCpuOfEachCore) {
  const Machine machine = large();
  EXPECT_EQ(filled_part(machine, {0, 2, 4, 6, 8, 10, 12, 14}), "machine");
  EXPECT_EQ(filled_part(machine, {8, 10, 12, 14}), "socket");
  EXPECT_EQ(filled_part(machine, {4, 6}), "node");
  EXPECT_EQ(filled_part(machine, {5}), "core");
  EXPECT_EQ(filled_part(machine, {0, 4}), "");
  EXPECT_EQ(filled_part(machine, {0, 1, 2, 3, 4, 5}), "");
  EXPECT_EQ(filled_part(small(), {0, 1}), "machine");
}

TEST(Parts, TellWhereMemoryIs) {
  const Machine machine = large();
  EXPECT_EQ(memory_place(machine, {0, 2}, 0), "local");
  EXPECT_EQ(memory_place(machine, {0}, 1), "same socket");
  EXPECT_EQ(memory_place(machine, {0, 1}, 2), "other socket");
  EXPECT_EQ(memory_place(machine, {0, 4}, 0), "") << "CPUs of two nodes";
  EXPECT_EQ(memory_place(machine, {0}, 9), "");
  Machine expanded = machine_of("pack:2 [numa] core:2 pu:1");
  mm::Node far{};
  far.id = 2;
  expanded.nodes.push_back(far);
  EXPECT_EQ(memory_place(expanded, {0}, 2), "without CPUs");
}

TEST(Parts, AreLevelsByTheSizesOfCaches) {
  Machine machine = large();
  machine.caches = {{1, 32 << 10}, {2, 1 << 20}, {3, 32 << 20}};
  EXPECT_EQ(level_of(machine, {0}, 16 << 10), "L1");
  EXPECT_EQ(level_of(machine, {0}, 32 << 10), "L1");
  EXPECT_EQ(level_of(machine, {0}, 48 << 10), "") << "more than the L1 holds, and not twice as much";
  EXPECT_EQ(level_of(machine, {0}, 512 << 10), "L2");
  EXPECT_EQ(level_of(machine, {0}, 8 << 20), "L3");
  EXPECT_EQ(level_of(machine, {0}, 256 << 20), "memory");
  EXPECT_EQ(level_of(machine, {0, 1}, 24 << 10), "") << "two CPUs of a core share its caches";
  EXPECT_EQ(level_of(machine, {0, 2}, 20 << 20), "") << "two cores share the L3";
  EXPECT_EQ(level_of(machine, {0, 4}, 20 << 20), "L3") << "each with an L3 of its own";
  EXPECT_EQ(level_of(machine, {0}, 0), "");
  machine.caches = {};
  EXPECT_EQ(level_of(machine, {0}, 1 << 10), "") << "sizes unknown";
}

TEST(Parts, AreNotGuessedWhereTheSourceStatesNone) {
  Machine machine = large();
  for (mm::Cpu& cpu : machine.cpus) cpu.has_package = cpu.has_l3 = false;
  EXPECT_EQ(smallest_part(machine, {0, 8}), "");
  EXPECT_EQ(smallest_part(machine, {0, 2}), "node");
  EXPECT_EQ(memory_place(machine, {0}, 2), "");
}

}  // namespace
