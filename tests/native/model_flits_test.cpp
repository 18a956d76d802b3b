/// Networks flit by flit, with channels that belong to one packet at a time.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "model/closed.hpp"
#include "model/network/flits.hpp"
#include "model/requests.hpp"
#include "model_machines.hpp"

namespace {

using mm::json;
using namespace mm::model;

/// A router of five cycles a hop; a cycle is 1 ns.
json machine_of(json topology, int channels, int buffer) {
  topology["links"] = "wire";
  return {{"topology", topology},
          {"links", {{"wire", {{"bandwidth_gb_per_s", 8.0}, {"latency_ns", 3}}}}},
          {"node", {{"cpus", 1}, {"controllers", 0}, {"port_gb_per_s", 8.0}, {"leave_ns", 1}, {"arrive_ns", 3}}},
          {"router",
           {{"flit_bytes", 8},
            {"routing", "dimension_order"},
            {"adaptive_channels", 0},
            {"escape_channels", 2},
            {"channels_per_escape", channels / 2},
            {"message_classes", 1},
            {"pipeline_ns", 1},
            {"allocation_ns", 1},
            {"requeue_ns", 1},
            {"credit_ns", 2},
            {"cycle_ns", 1},
            {"buffer_flits", buffer},
            {"channel_sharing", "exclusive"}}}};
}

json torus(std::vector<int> shape) { return {{"kind", "torus"}, {"shape", shape}}; }

json traffic(const json& machine, const char* pattern, double load, int flits, int packets = 4000) {
  const json run{{"kind", "traffic"},     {"pattern", pattern}, {"load", load},
                 {"packet_flits", flits}, {"packets", packets}, {"warm_packets", packets}};
  return answer(Ready(machine), run, 0, {});
}

TEST(Flits, WithoutQueueingALatencyIsThatOfTheClosedForm) {
  for (const json& topology : {torus({4, 4}), torus({3, 4, 2}), json{{"kind", "mesh"}, {"shape", {5, 3}}},
                               json{{"kind", "ring"}, {"shape", {8}}}, json{{"kind", "hypercube"}, {"dimensions", 3}}})
    for (const int flits : {1, 5, 23}) {  // also longer than a buffer
      const Ready m(machine_of(topology, 4, 8));
      FlitNetwork network(m.graph, m.routing, m.routers, 1);
      for (std::uint32_t from = 0; from < m.graph.endpoints.size(); ++from)
        for (std::uint32_t to = 0; to < m.graph.endpoints.size(); ++to) {
          const std::uint32_t p = network.fresh();
          network.packet(p).flits = static_cast<std::uint16_t>(flits);
          network.packet(p).target = to;
          const std::int64_t born = network.cycle();
          network.inject(from, p);
          while (network.step().empty()) ASSERT_LT(network.cycle(), born + 1000);
          EXPECT_EQ(1000 * (network.cycle() - 1 - born),
                    path_time(m.graph, m.routing, m.routers, from, to) + 1000 * flits)
              << name(topology) << flits;
          network.release(p);
        }
      while (!network.quiet()) network.step();
      EXPECT_TRUE(network.all_credits_back());
    }
}

TEST(Flits, LatencyUnderLoadIsThatOfAnIndependentSimulator) {
  // BookSim 2, 2026-11-24: packet latency in cycles, mean of at least 12,000 packets (bench/network.py).
  struct Case {
    std::vector<int> shape;
    int channels, buffer, flits;
    double load, cycles;
  };
  for (const Case& c : {Case{{8, 8}, 4, 8, 1, 0.5, 38.07}, Case{{8, 8}, 4, 8, 5, 0.5, 50.95},
                        Case{{8, 8}, 8, 32, 5, 0.496, 47.81}, Case{{4, 4}, 4, 8, 5, 0.496, 29.19}}) {
    const json said = traffic(machine_of(torus(c.shape), c.channels, c.buffer), "uniform", c.load, c.flits, 12000);
    EXPECT_NEAR(said.at("latency_cycles").get<double>() / c.cycles, 1, 0.06) << c.channels << ' ' << c.flits;
    EXPECT_NEAR(said.at("accepted").get<double>(), c.load, 0.05 * c.load);
  }
}

TEST(Flits, EveryPatternAndLoadDrainsWithoutDeadlock) {
  for (const json& topology : {torus({4, 4}), torus({5, 3}), json{{"kind", "mesh"}, {"shape", {4, 4}}}})
    for (const char* pattern : {"uniform", "hot_spot", "complement", "tornado", "neighbour"})
      for (const int flits : {1, 7}) {
        const json said = traffic(machine_of(topology, 2, 4), pattern, 40, flits);
        EXPECT_GT(said.at("packet_hops").get<double>(), 1000) << name(topology) << pattern;
        EXPECT_LE(said.at("accepted").get<double>(), 1.0 + 1e-9);
      }
}

TEST(Flits, ASlowLinkCarriesItsRate) {
  json machine = machine_of({{"kind", "ring"}, {"shape", {2}}}, 4, 16);
  machine["links"]["wire"]["bandwidth_gb_per_s"] = 2;  // a flit takes four cycles
  EXPECT_NEAR(traffic(machine, "neighbour", 5, 4).at("accepted").get<double>(), 0.25, 0.01);
}

TEST(Traffic, TornadoAndNeighbourMoveEveryCoordinate) {
  const auto routers = [](const char* pattern, const json& topology) {
    return traffic(machine_of(topology, 4, 8), pattern, 0.05, 1, 500).at("hops").get<double>();
  };
  EXPECT_EQ(routers("neighbour", torus({8, 8})), 1 + 1 + 1);
  EXPECT_EQ(routers("tornado", torus({8, 8})), 3 + 3 + 1);
  EXPECT_EQ(routers("tornado", torus({8, 4, 4})), 3 + 1 + 1 + 1);
  EXPECT_EQ(routers("neighbour", json{{"kind", "ring"}, {"shape", {8}}}), 1 + 1);
}

TEST(Traffic, ThatANetworkCannotCarryIsRefusedByTheKey) {
  const auto refusal = [](const json& machine, const json& run) {
    try {
      answer(Ready(machine), run, 0, {});
    } catch (const mm::UsageError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  json run{{"kind", "traffic"}, {"pattern", "transpose"}, {"load", 0.1}};
  EXPECT_NE(refusal(machine_of(torus({8, 4}), 4, 8), run).find("transpose on 32 CPUs"), std::string::npos);
  run = {{"kind", "traffic"}, {"load", 0.1}, {"packet_flits", 20}};
  EXPECT_EQ(refusal(machine_of(torus({4, 4}), 4, 8), run), "accepted");
  json shared = machine_of(torus({4, 4}), 4, 8);
  shared["router"]["channel_sharing"] = "packets";
  EXPECT_NE(refusal(shared, run).find("found 20"), std::string::npos);
}

TEST(Traffic, OfWholeMachinesIsNotFlitByFlit) {
  json machine = machine_on({{"kind", "torus"}, {"shape", {4, 4}}});
  machine["router"]["routing"] = "dimension_order";
  machine["router"]["adaptive_channels"] = 0;
  machine["router"]["channel_sharing"] = "exclusive";
  const json run{
      {"kind", "trial"}, {"measure_ns", 1000}, {"actors", {{{"cpus", "all"}, {"streams", {{{"homes", "others"}}}}}}}};
  EXPECT_THROW(answer(Ready(machine), run, 0, {}), mm::UsageError);
}

}  // namespace
