/// Jobs avoid CPUs that programs without a reservation use, if enough others are free; and these CPUs are found.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "place/policy/policy.hpp"
#include "place/sample/in_use.hpp"

namespace {

using namespace mm::place;
using Cpus = std::vector<int>;

constexpr const char* kTwoByFour = "pack:2 [numa] core:4 pu:1";

Placement placed(const std::string& bind, int slots, const Occupancy& taken, SlotKind kind = SlotKind::cores,
                 const std::string& machine = kTwoByFour) {
  Request request;
  parse_bind(bind, request);
  request.slots = slots;
  request.kind = kind;
  return place(mm::machine_of(machine), request, taken);
}

TEST(PlaceInUse, EveryPolicyAvoidsCpusThatOtherProgramsUse) {
  const Occupancy taken{{}, {}, {0, 1, 4}};
  EXPECT_EQ(placed("any", 2, taken).layout.cpus(), (Cpus{2, 3}));
  EXPECT_EQ(placed("pack", 2, taken).layout.cpus(), (Cpus{2, 3}));
  EXPECT_EQ(placed("compact", 3, taken).layout.cpus(), (Cpus{5, 6, 7}));
  EXPECT_EQ(placed("balance", 2, taken).layout.parts, (std::vector<Cpus>{{5}, {2}}));  // socket 0 has fewer unused CPUs
  EXPECT_NE(placed("any", 2, taken).why.find("; other programs use CPUs 0-1,4"), std::string::npos);
}

TEST(PlaceInUse, ANodeThatOthersUseIsTheLastThatBalanceChooses) {
  // Jobs hold one CPU of each of the nodes 0 to 2, and other programs use node 3 (a guest of four nodes with two CPUs).
  const Occupancy taken{{{0, 1}, {2, 1}, {4, 1}}, {}, {6, 7}};
  EXPECT_EQ(placed("balance", 1, taken, SlotKind::cores, "pack:4 [numa] core:2 pu:1").layout.cpus(), Cpus{1});
}

TEST(PlaceInUse, UsedCpusAreTakenBeforeReservedOnesAndWhereOnlyTheyFit) {
  const Occupancy full{{{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}}, {}, {7}};
  const Placement last = placed("balance", 1, full);
  EXPECT_EQ(last.layout.cpus(), Cpus{7});
  EXPECT_FALSE(last.oversubscribed);
  EXPECT_EQ(placed("pack", 4, {{}, {}, {0, 4}}).layout.cpus(), (Cpus{0, 1, 2, 3}));  // each socket has a used CPU
  EXPECT_EQ(placed("any", 8, {{}, {}, {0, 4}}).layout.cpus().size(), 8U);
}

TEST(PlaceInUse, AListIsWhatTheUserWrote) {
  EXPECT_EQ(placed("list=0-1", 2, {{}, {}, {0, 1}}).layout.cpus(), (Cpus{0, 1}));
}

TEST(PlaceInUse, ABusyCpuIsFound) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int last = -1;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) last = cpu;
  std::atomic<bool> is_over = false;
  std::thread spinning([&] {
    while (!is_over) {}
  });
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  ASSERT_EQ(pthread_setaffinity_np(spinning.native_handle(), sizeof one, &one), 0);
  bool is_found = false;
  for (int i = 0; i < 100 && !is_found; ++i) is_found = cpus_in_use().contains(last);  // the hypervisor may take it
  is_over = true;
  spinning.join();
  EXPECT_TRUE(is_found);
}

}  // namespace
