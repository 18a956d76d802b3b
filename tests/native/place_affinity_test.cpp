/// LSF's affinity[…]: the examples of its manual, units and masks, the jobs of others, and wrong text.
#include <gtest/gtest.h>

#include "place/syntax.hpp"
#include "place_layouts.hpp"

namespace {

using namespace mm::place;
using mm::Machine, mm::machine_of;

Parts placed(const Machine& machine, const char* text, int tasks, const Occupancy& taken = {}) {
  return place(machine, parse_affinity(text, tasks), taken).layout.parts;
}

// The examples of IBM's "Submit jobs with affinity resource requirements", on two sockets of four and of eight cores.
TEST(PlaceAffinity, TheManualsExamples) {
  const Machine small = two_by_four(), large = machine_of("pack:2 [numa] core:8 pu:1");
  EXPECT_EQ(placed(large, "span[hosts=1] affinity[core(1):distribute=pack]", 6), (Parts{{0}, {1}, {2}, {3}, {4}, {5}}));
  EXPECT_EQ(placed(small, "affinity[core(1):distribute=pack]", 6), (Parts{{0}, {1}, {2}, {3}, {4}, {5}}));
  EXPECT_EQ(placed(large, "affinity[core(1):distribute=pack(socket=1)]", 6), (Parts{{0}, {1}, {2}, {3}, {4}, {5}}));
  EXPECT_NE(complaint([&] { placed(small, "affinity[core(1):distribute=pack(socket=1)]", 6); }).find("do not fit"),
            std::string::npos);
  EXPECT_EQ(placed(small, "affinity[core(2, same=socket, exclusive=(socket, injob))]", 2), (Parts{{0, 1}, {4, 5}}));
  EXPECT_EQ(
      placed(small, "affinity[core(2,same=socket,exclusive=(socket,alljobs)):cpubind=socket:distribute=balance]", 4),
      (Parts{{0, 1, 2, 3}, {4, 5, 6, 7}, {0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(placed(large, "affinity[core(5,same=numa):cpubind=numa:membind=localonly]", 2),
            (Parts{{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}}));
}

TEST(PlaceAffinity, WhatIsAskedForIsUnderstood) {
  const Affinity a = parse_affinity(
      "affinity[cpu(2,same=core,exclusive=(mcm,intask|alljobs))*3:cpubind=core:membind=localprefer:distribute=balance]",
      4);
  EXPECT_EQ(a.unit, "thread");
  EXPECT_EQ(a.units_per_task, 6);
  EXPECT_EQ(a.groups_per_task, 3);
  EXPECT_EQ(a.request.slots, 24);
  EXPECT_EQ(a.request.kind, SlotKind::threads);
  EXPECT_EQ(a.same, "core");
  EXPECT_EQ(a.exclusive_level, "numa");
  EXPECT_EQ(a.exclusive_scope, "intask|alljobs");
  EXPECT_TRUE(a.request.exclude);
  EXPECT_EQ(a.cpubind, "core");
  EXPECT_EQ(a.memory.policy, "preferred");
  EXPECT_EQ(a.request.policy, "balance");
  EXPECT_EQ(parse_affinity("affinity[socket]", 1).cpubind, "socket");
  EXPECT_EQ(parse_affinity("affinity[core(2):membind=localonly]", 1).memory.policy, "bind");
  EXPECT_EQ(parse_affinity("affinity[core*2]", 3).request.slots, 6);
}

TEST(PlaceAffinity, UnitsAndMasks) {
  const Machine machine = threads_last();  // cores {0,4} {1,5} | {2,6} {3,7}
  EXPECT_EQ(placed(machine, "affinity[core]", 2), (Parts{{0, 4}, {1, 5}}));
  EXPECT_EQ(placed(machine, "affinity[thread]", 3), (Parts{{0}, {4}, {1}}));
  EXPECT_EQ(placed(machine, "affinity[thread:cpubind=core]", 3), (Parts{{0, 4}, {0, 4}, {1, 5}}));
  EXPECT_EQ(placed(machine, "affinity[core(1,exclusive=(core,injob)):distribute=balance]", 3),
            (Parts{{0, 4}, {2, 6}, {1, 5}}));
  EXPECT_EQ(placed(machine, "affinity[numa]", 2), (Parts{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(placed(machine, "affinity[thread(2,same=core)]", 2), (Parts{{0, 4}, {1, 5}}));
  // Two groups of one task that may not share a socket, and one task that spans both.
  EXPECT_EQ(placed(machine, "affinity[core(1,exclusive=(socket,intask))*2]", 1), (Parts{{0, 2, 4, 6}}));
  EXPECT_EQ(placed(machine, "affinity[core(3)]", 1), (Parts{{0, 1, 2, 4, 5, 6}}));
  Machine restricted = machine;
  restricted.allowed = {1, 5, 6, 7};
  EXPECT_EQ(placed(restricted, "affinity[core:cpubind=socket]", 2), (Parts{{1, 5}, {6, 7}}));
}

TEST(PlaceAffinity, OthersJobsAreSeen) {
  const Machine machine = two_by_four();
  const Occupancy taken{{{0, 1}}, {}};
  EXPECT_EQ(placed(machine, "affinity[core:distribute=any]", 1, taken), (Parts{{1}}));
  EXPECT_EQ(placed(machine, "affinity[core:distribute=balance]", 1, taken), (Parts{{4}}));  // the emptier socket
  EXPECT_EQ(placed(machine, "affinity[core(1,exclusive=(socket,alljobs))]", 1, taken), (Parts{{4}}));
  EXPECT_EQ(placed(machine, "affinity[core(4):distribute=pack]", 1, taken), (Parts{{4, 5, 6, 7}}));
  EXPECT_NE(complaint([&] { placed(machine, "affinity[core]", 8, taken); }).find("busy: "), std::string::npos);
  EXPECT_NE(complaint([&] { placed(machine, "affinity[core]", 9, taken); }).find("8 cores"), std::string::npos);
  EXPECT_NE(complaint([&] { placed(machine, "affinity[core(5,same=socket)]", 1); }).find("do not fit"),
            std::string::npos);
  EXPECT_NE(complaint([&] { placed(machine, "affinity[core(1,exclusive=(socket,injob))]", 3); }).find("do not fit"),
            std::string::npos);
}

TEST(PlaceAffinity, WrongTextIsRefusedAndTheWordNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "''"},
      {"core(2)", "'core(2)'"},
      {"affinity[core(2)", "'affinity[core(2)'"},
      {"affinity[]", "''"},
      {"affinity[die(2)]", "'die'"},
      {"affinity[core(0)]", "'0'"},
      {"affinity[core(2]", "'(2'"},
      {"affinity[core(2,same=l3)]", "'l3'"},
      {"affinity[core(2,same=core)]", "'same=core'"},
      {"affinity[core(2,same=socket,same=numa)]", "'same=numa'"},
      {"affinity[core(2,exclusive=socket)]", "'socket'"},
      {"affinity[socket(1,exclusive=(core,injob))]", "'exclusive=(core,injob)'"},
      {"affinity[core(2,exclusive=(socket,mine))]", "'mine'"},
      {"affinity[core(2)*x]", "'x'"},
      {"affinity[core:cpubind=die]", "'die'"},
      {"affinity[core:membind=far]", "'membind=far'"},
      {"affinity[core:distribute=spread]", "'distribute=spread'"},
      {"affinity[core:distribute=pack(socket=2)]", "'distribute=pack(socket=2)'"},
      {"affinity[core:distribute=any:distribute=pack]", "'distribute=pack'"},
      {"affinity[core:colour=red]", "'colour=red'"},
      {"affinity[core(99999)*9999]", "too many units"},
      {"rusage[mem=1] affinity[core]", "rusage"},
  };
  for (const auto& [text, word] : cases) {
    const std::string said = complaint([&, t = text] { parse_affinity(t, 2); });
    EXPECT_NE(said.find(word), std::string::npos) << text << ": " << said;
  }
}

}  // namespace
