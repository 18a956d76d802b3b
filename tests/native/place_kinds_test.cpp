/// Kinds of cores (P and E cores, big.LITTLE) in policies and in the conditions of results.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "place/policy/policy.hpp"
#include "place_layouts.hpp"

namespace {

using namespace mm::place;
using mm::Machine, mm::machine_of;
using Cpus = std::vector<int>;

std::vector<Cpus> placed(const Machine& machine, const std::string& bind, const std::vector<int>& slots) {
  Occupancy taken;
  std::vector<Cpus> result;
  for (const int n : slots) {
    Request request;
    parse_bind(bind, request);
    request.slots = n;
    request.kind = SlotKind::cores;
    const Placement placement = place(machine, request, taken);
    occupy(taken, placement, request.exclude);
    result.push_back(placement.layout.cpus());
  }
  return result;
}

constexpr const char* kAlike = "pack:2 [numa] core:4 pu:1";

// Slow cores have the lower numbers, so that the order of numbers is not that of speed.
Machine hybrid() {
  Machine machine = machine_of("pack:1 [numa] core:8 pu:1");
  std::vector<mm::CoreKind> kinds(2);
  kinds[0].name = "performance", kinds[0].cpus = {4, 5, 6, 7};
  kinds[1].name = "efficiency", kinds[1].cpus = {0, 1, 2, 3};
  mm::set_kinds(machine, kinds);
  return machine;
}

TEST(CoreKinds, TakesTheFastestKindOfCoresFirst) {
  const Machine machine = hybrid();
  for (const std::string policy : {"balance", "pack"})
    EXPECT_EQ(placed(machine, policy, {2, 3, 3}), (std::vector<Cpus>{{4, 5}, {0, 6, 7}, {1, 2, 3}})) << policy;
}

TEST(CoreKinds, TakesOnlyTheKindOfCoresThatIsNamed) {
  const Machine machine = hybrid();
  for (const std::string policy : {"balance", "pack", "any", "compact", "scatter"}) {
    EXPECT_EQ(placed(machine, policy + ",kind=efficiency", {4}), (std::vector<Cpus>{{0, 1, 2, 3}})) << policy;
    EXPECT_EQ(placed(machine, policy + ",kind=Performance", {1}), (std::vector<Cpus>{{4}})) << policy;
    EXPECT_NE(complaint([&] { placed(machine, policy + ",kind=efficiency", {5}); }), "") << policy;
  }
}

TEST(CoreKinds, RefusesKindsOfCoresThatDoNotExist) {
  Machine machine = hybrid();
  EXPECT_EQ(complaint([&] { placed(machine, "balance,kind=fast", {1}); }),
            "kind: found 'fast'; performance, efficiency");
  EXPECT_EQ(complaint([&] { placed(machine, "none,kind=efficiency", {1}); }),
            "bind: 'none' uses no CPUs, so kind= does not apply; other policies with kind=");
  machine.allowed = {4, 5};
  EXPECT_EQ(complaint([&] { placed(machine, "balance,kind=efficiency", {1}); }),
            "kind: found 'efficiency', whose CPUs may not be used here; 4-5");
  EXPECT_EQ(complaint([&] { placed(machine_of(kAlike), "balance,kind=efficiency", {1}); }),
            "kind: found 'efficiency', but the cores of this machine are alike; no kind=");
}

TEST(CoreKinds, NamesTheKindsOfTheCoresThatAJobHas) {
  const Machine machine = hybrid();
  EXPECT_EQ(mm::kind_names(machine, {0, 4}), "performance, efficiency");
  EXPECT_EQ(mm::kind_names(machine, {1, 2}), "efficiency");
  EXPECT_EQ(mm::kind_names(machine_of(kAlike), {0, 1}), "");
}

}  // namespace
