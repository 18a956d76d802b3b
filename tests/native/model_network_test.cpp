/// Networks of the simulator: routes of every topology, the load of their links, and deadlocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.hpp"
#include "model/closed.hpp"
#include "model/requests.hpp"
#include "model_machines.hpp"

namespace {

using mm::json;
using namespace mm::model;

TEST(Model, HopsAreThoseOfTheTopologiesFormulas) {
  const auto distance = [](const json& topology, std::uint32_t a, std::uint32_t b) {
    const Ready m(machine_on(topology));
    return m.routing.distance(m.graph.node_router[a], m.graph.node_router[b]);
  };
  const auto around = [](int a, int b, int n) { return std::min(std::abs(a - b), n - std::abs(a - b)); };
  for (std::uint32_t n = 0; n < 24; ++n) {
    const int x = static_cast<int>(n) % 3, y = static_cast<int>(n) / 3 % 4, z = static_cast<int>(n) / 12;
    EXPECT_EQ(distance({{"kind", "torus"}, {"shape", {3, 4, 2}}}, 0, n),
              around(0, x, 3) + around(0, y, 4) + around(0, z, 2));
  }
  for (std::uint32_t n = 0; n < 15; ++n)
    EXPECT_EQ(distance({{"kind", "mesh"}, {"shape", {5, 3}}}, 7, n),
              std::abs(2 - static_cast<int>(n) % 5) + std::abs(1 - static_cast<int>(n) / 5));
  for (std::uint32_t n = 0; n < 16; ++n)
    EXPECT_EQ(distance({{"kind", "hypercube"}, {"dimensions", 4}}, 5, n), __builtin_popcount(5U ^ n));
  for (std::uint32_t n = 1; n < 8; ++n)  // up to the first common ancestor and down
    EXPECT_EQ(distance({{"kind", "fat_tree"}, {"arity", 2}, {"levels", 3}}, 0, n), n < 2 ? 2 : n < 4 ? 4 : 6);
  EXPECT_EQ(distance({{"kind", "switches"}, {"radix", {4, 3}}}, 0, 3), 2);
  EXPECT_EQ(distance({{"kind", "switches"}, {"radix", {4, 3}}}, 0, 4), 4);
}

TEST(Model, UniformLoadOfAnOblongTorusIsTwiceOnItsLongSide) {
  const Ready m(machine_on({{"kind", "torus"}, {"shape", {8, 4}}}));
  const std::vector<double> load = uniform_loads(m.graph, m.routing);
  std::set<double> x, y;
  for (std::size_t o = 0; o < load.size(); ++o) {
    if (m.graph.outputs[o].dimension == 0) x.insert(std::round(load[o] * 1e9));
    if (m.graph.outputs[o].dimension == 1) y.insert(std::round(load[o] * 1e9));
  }
  // n / 8 hops per direction and packet on a ring of n, on each of 32 links of a direction.
  EXPECT_EQ(x, std::set<double>{std::round(1.0 / 32 * 1e9)});
  EXPECT_EQ(y, std::set<double>{std::round(0.5 / 32 * 1e9)});
}

TEST(Model, NoDeadlockUnderAdversePatternsAndRandomGraphs) {
  for (const json& topology : topologies()) {
    json machine = machine_on(topology);
    machine.erase("memory");
    machine["node"]["controllers"] = 0;
    machine["router"]["message_classes"] = 1;
    machine["router"]["buffer_flits"] = 18;
    const Ready m(machine);
    for (const char* pattern : {"tornado", "complement", "uniform", "hot_spot"}) {
      const json said = answer(m,
                               {{"kind", "traffic"},
                                {"pattern", pattern},
                                {"load", 40.0},
                                {"packet_flits", 18},
                                {"packets", 4000},
                                {"warm_packets", 100}},
                               0, {});
      EXPECT_GT(said.at("packet_hops").get<double>(), 1000) << name(topology) << pattern;
    }
  }
  Draws draws(7, 0);
  for (int trial = 0; trial < 30; ++trial) {
    const auto n = 3 + draws.below(12);
    json edges = json::array();
    for (std::uint64_t r = 1; r < n; ++r) edges.push_back({r, draws.below(r), "short"});
    for (std::uint64_t e = 0; e < n; ++e)
      if (const auto a = draws.below(n), b = draws.below(n); a != b) edges.push_back({a, b, "long"});
    json machine = machine_on({{"kind", "graph"}, {"routers", n}, {"edges", edges}});
    machine["router"]["buffer_flits"] = 18;
    const Ready m(machine);
    Trial work;
    work.batches = 1;
    for (std::uint32_t k = 0; k < m.graph.nodes(); ++k) {
      Actor actor;
      actor.endpoint = m.graph.cpus_of[k].front();
      actor.chains = 16;
      actor.accesses = 300;
      AccessStream s;
      s.homes = Homes::uniform;
      actor.streams = {s};
      work.actors.push_back(actor);
    }
    const TrialResult r = simulate(m.graph, m.routing, m.routers, m.nodes, work);
    EXPECT_EQ(r.requested, r.answered) << edges.dump();
  }
}

TEST(Model, ADeadlockIsRefusedWithItsCycleAndFoundWhenItIsAllowed) {
  json machine = machine_on({{"kind", "ring"}, {"shape", {8}}});
  machine["router"]["adaptive_channels"] = 0;
  machine["router"]["routing"] = "dimension_order";
  machine["router"]["escape_channels"] = 1;
  try {
    const Ready m(machine);
    FAIL() << "a ring without date lines was accepted";
  } catch (const mm::UsageError& e) {
    EXPECT_EQ(e.field, "router.escape_channels");
    const std::string text = e.what();
    EXPECT_NE(text.find("router 1"), std::string::npos) << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '['), 8) << "all links of the cycle: " << text;
    EXPECT_EQ(text.find("..."), std::string::npos) << text;
  }
  machine["router"]["deadlock_allowed"] = true;
  machine["router"]["buffer_flits"] = 18;
  machine["router"]["message_classes"] = 1;
  machine.erase("memory");
  const Ready m(machine);
  try {
    answer(m,
           {{"kind", "traffic"},
            {"pattern", "tornado"},
            {"load", 30.0},
            {"packet_flits", 18},
            {"packets", 2000},
            {"warm_packets", 0}},
           0, {});
    FAIL() << "no deadlock was found";
  } catch (const mm::Failure& e) {
    EXPECT_NE(std::string(e.what()).find("waits for"), std::string::npos) << e.what();
  }
}

TEST(Model, AWholeMachineInDeadlockEndsToo) {
  json machine = machine_on({{"kind", "ring"}, {"shape", {8}}});
  machine["router"]["adaptive_channels"] = 0;
  machine["router"]["routing"] = "dimension_order";
  machine["router"]["escape_channels"] = 1;
  machine["router"]["deadlock_allowed"] = true;
  machine["router"]["buffer_flits"] = 18;
  const Ready m(machine);
  Trial trial;
  trial.window = 1'000'000;  // without a check, frames would continue forever
  for (std::uint32_t n = 0; n < 8; ++n) {
    Actor actor;
    actor.endpoint = m.graph.cpus_of[n].front();
    actor.chains = 16;
    actor.accesses = 100000;
    AccessStream write;
    write.op = Op::write;
    write.homes = Homes::fixed;
    write.nodes = {(n + 3) % 8};
    actor.streams = {write};
    trial.actors.push_back(actor);
  }
  try {
    simulate(m.graph, m.routing, m.routers, m.nodes, trial);
    FAIL() << "eight rings of writes did not block each other";
  } catch (const mm::Failure& e) {
    EXPECT_NE(std::string(e.what()).find("waits for [router"), std::string::npos) << e.what();
  }
}

}  // namespace
