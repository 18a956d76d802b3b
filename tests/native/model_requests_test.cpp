/// Requests to the simulator: what a run may ask, how it is refused, and what the answers say about the machine.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "model/closed.hpp"
#include "model/requests.hpp"

namespace {

using mm::json;
using namespace mm::model;

/// A ring of four nodes with two CPUs each, and an I/O port.
json ring() {
  return json::parse(R"({
    "topology": {"kind": "ring", "shape": [4], "links": "cable"},
    "links": {"cable": {"bandwidth_gb_per_s": 3.2, "latency_ns": 10}},
    "node": {"cpus": 2, "controllers": 2, "leave_ns": 1.5, "port_gb_per_s": 6.4},
    "router": {"flit_bytes": 4, "pipeline_ns": 10, "cycle_ns": 1, "buffer_flits": 40},
    "packets": {"request_flits": 3, "data_flits": 18},
    "cpu": {"outstanding": 16, "request_ns": 20, "fill_ns": 10, "probe_ns": 15},
    "io": {"port_gb_per_s": 3, "device_gb_per_s": 1, "ports_per_node": 1, "outstanding": 32},
    "memory": {"channel_gb_per_s": 6.1, "access_ns": 50, "activate_ns": 50, "page_bytes": 2048, "banks": 64},
    "coherence": {"kind": "directory", "directory_ns": 30}})");
}

json without(json machine, const char* key) {
  machine.erase(key);
  return machine;
}

/// A trial of dependent reads of CPU 0, changed by `actor` and `stream`.
json trial(const json& actor = json::object(), const json& stream = json::object()) {
  json one{{"cpus", {0}}, {"accesses", 40}};
  json reads{{"homes", {0}}};
  if (!stream.is_null()) reads.update(stream);
  one["streams"] = {reads};
  if (!actor.is_null()) one.update(actor);
  return {{"kind", "trial"}, {"actors", {one}}, {"batches", 1}};
}

std::string refused(const Ready& m, const json& run) {
  try {
    answer(m, run, 3, {});
  } catch (const mm::UsageError& e) {
    return e.field;
  }
  return "taken";
}

TEST(Requests, SayWhichRunTheyAnswer) {
  const Ready m(ring());
  const json said = answer(m, {{"kind", "hops"}, {"id", "mine"}}, 3, {});
  EXPECT_EQ(said.at("type"), "answer");
  EXPECT_EQ(said.at("run"), 3);
  EXPECT_EQ(said.at("kind"), "hops");
  EXPECT_EQ(said.at("id"), "mine");
  EXPECT_FALSE(answer(m, {{"kind", "hops"}}, 0, {}).contains("id"));
  EXPECT_EQ(refused(m, {{"kind", "dance"}}), "runs[3].kind");
  EXPECT_EQ(refused(m, {{"kind", "hops"}, {"seed", -1}}), "runs[3].seed");
  EXPECT_EQ(refused(m, json::array()), "runs[3]");
}

TEST(Requests, OfHopsAnswerWithTheDistanceOfEveryPair) {
  const Ready m(ring());
  EXPECT_EQ(answer(m, {{"kind", "hops"}}, 0, {}).at("hops"), json::parse("[[0,1,2,1],[1,0,1,2],[2,1,0,1],[1,2,1,0]]"));
}

TEST(Requests, ForADescriptionAnswerWithWhatTheMachineHas) {
  const Ready m(ring());
  const json said = answer(m, {{"kind", "describe"}}, 0, {});
  EXPECT_EQ(said.at("cpus"), 8);
  EXPECT_EQ(said.at("memories"), 8);
  EXPECT_EQ(said.at("io_ports"), 4);
  EXPECT_EQ(said.at("cpu_nodes"), json::parse("[0,0,1,1,2,2,3,3]"));
  EXPECT_EQ(said.at("memory_nodes"), json::parse("[0,0,1,1,2,2,3,3]"));
  EXPECT_EQ(said.at("io_nodes"), json::parse("[0,1,2,3]"));
  ASSERT_EQ(said.at("nodes").size(), 4U);
  EXPECT_EQ(said.at("nodes")[2], json::parse(R"({"node": 2, "router": 2, "cpus": 2, "memories": 2, "io": 1})"));
  ASSERT_EQ(said.at("routers").size(), 4U);
  EXPECT_EQ(said.at("routers")[3], json::parse(R"({"router": 3, "bus": false, "place": [3]})"));
  ASSERT_EQ(said.at("links").size(), 8U);
  for (const json& link : said.at("links")) {
    const int from = link.at("from"), to = link.at("to"), direction = link.at("direction");
    EXPECT_EQ((from + direction + 4) % 4, to);
    EXPECT_EQ(link.at("kind"), "cable");
    EXPECT_EQ(link.at("dimension"), 0);
  }
  json with_bus = ring();
  with_bus["node"]["cpus"] = 4;
  with_bus["node"]["bus"] = {{"cpus_per_bus", 2}, {"bandwidth_gb_per_s", 6.4}, {"latency_ns", 2}};
  std::size_t buses = 0;
  const json buses_too = answer(Ready(with_bus), {{"kind", "describe"}}, 0, {});
  for (const json& router : buses_too.at("routers")) {
    buses += router.at("bus").get<bool>();
    EXPECT_EQ(router.at("place").empty(), router.at("bus").get<bool>());
  }
  EXPECT_EQ(buses, 8U);
}

TEST(Requests, OfLoadsAnswerWithTheShareOfEveryLink) {
  const Ready m(ring());
  const std::vector<double> expected = uniform_loads(m.graph, m.routing);
  const json links = answer(m, {{"kind", "loads"}}, 0, {}).at("links");
  ASSERT_EQ(links.size(), 8U);
  for (const json& link : links) EXPECT_NEAR(link.at("share").get<double>(), 1.0 / 8, 1.0 / 16);
  std::size_t at = 0;
  for (std::size_t o = 0; o < m.graph.outputs.size(); ++o)
    if (m.graph.outputs[o].to_router != kNone) {
      EXPECT_EQ(links[at].at("share"), expected[o]);
      EXPECT_EQ(links[at++].at("from"), m.graph.outputs[o].router);
    }
}

TEST(Requests, OfAMatrixAnswerWithTheClosedForm) {
  const Ready m(ring());
  const auto closed = [&](std::uint32_t from, std::uint32_t home, State state, bool open) {
    return 1e-12 * static_cast<double>(zero_load(m.graph, m.routing, m.routers, m.nodes, m.graph.cpus_of[from].front(),
                                                 home, 0, state, static_cast<int>(home), open));
  };
  const json all = answer(m, {{"kind", "matrix"}}, 0, {}).at("latency_s");
  ASSERT_EQ(all.size(), 4U);
  for (std::uint32_t a = 0; a < 4; ++a) {
    ASSERT_EQ(all[a].size(), 4U);
    for (std::uint32_t b = 0; b < 4; ++b) EXPECT_DOUBLE_EQ(all[a][b], closed(a, b, State::clean, true));
  }
  const json some =
      answer(m, {{"kind", "matrix"}, {"nodes", {2}}, {"state", "dirty"}, {"page_open", false}}, 0, {}).at("latency_s");
  ASSERT_EQ(some.size(), 1U);
  for (std::uint32_t b = 0; b < 4; ++b) EXPECT_DOUBLE_EQ(some[0][b], closed(2, b, State::dirty, false));
  EXPECT_NE(closed(2, 1, State::clean, true), closed(2, 1, State::clean, false));
  EXPECT_EQ(refused(m, {{"kind", "matrix"}, {"nodes", {4}}}), "runs[3].nodes");
}

TEST(Requests, OfATrialAnswerInSecondsAndRates) {
  const Ready m(ring());
  const json said = answer(m, trial({}, {{"span_lines", 1}}), 0, {});
  ASSERT_EQ(said.at("groups").size(), 1U);
  const json& group = said.at("groups")[0];
  const double latency_s = group.at("latency_s")[0], ended_s = group.at("ended_s"), measured_s = said.at("measured_s");
  // One chain of 40 reads: each is answered before the next begins.
  EXPECT_NEAR(ended_s / 40, latency_s, 0.02 * latency_s);
  EXPECT_GT(latency_s, 50e-9);
  EXPECT_LT(latency_s, 150e-9);
  EXPECT_NEAR(group.at("reads_per_s")[0].get<double>() * measured_s, 40, 1e-6);
  EXPECT_NEAR(group.at("bytes_per_s")[0].get<double>() * measured_s, 40 * 64, 1e-4);
  EXPECT_EQ(said.at("asked"), said.at("answered"));
  EXPECT_FALSE(said.contains("links"));
  EXPECT_FALSE(group.contains("phase_s"));
}

TEST(Requests, WithLinksSayHowBusyLinksAndPortsAre) {
  const Ready m(ring());
  json run = trial({{"io", "all"}, {"accesses", 20}}, {{"homes", {1}}});
  run["actors"][0].erase("cpus");
  run["links"] = true;
  const json said = answer(m, run, 0, {});
  ASSERT_EQ(said.at("links").size(), 8U);
  ASSERT_EQ(said.at("io_share").size(), 4U);
  double most = 0;
  for (const json& link : said.at("links")) most = std::max(most, link.at("share").get<double>());
  EXPECT_GT(most, 0);
  EXPECT_LE(most, 1);
  for (std::size_t node = 0; node < 4; ++node)  // what node 1 reads is its own, and passes no router
    EXPECT_EQ(said.at("io_share")[node].get<double>() > 0, node != 1) << node;
}

TEST(Requests, WithTrafficCountLinesByPairOfNodes) {
  const Ready m(ring());
  json run = trial({{"cpus", {2, 3}}, {"accesses", 20}}, {{"homes", {3}}});  // both CPUs of node 1
  run["actors"].push_back({{"cpus", {0}}, {"accesses", 7}, {"streams", {{{"homes", {0}}, {"op", "write"}}}}});
  EXPECT_FALSE(answer(m, run, 0, {}).contains("traffic"));
  run["traffic"] = true;
  const json said = answer(m, run, 0, {});
  const json none = {0, 0, 0, 0};
  EXPECT_EQ(said.at("traffic").at("reads"), json({none, {0, 0, 0, 40}, none, none}));
  EXPECT_EQ(said.at("traffic").at("writes"), json({{7, 0, 0, 0}, none, none, none}));
}

TEST(Requests, WithoutWarmUpStateSharesOfTheWholeTime) {
  const Ready m(ring());
  json run = trial({{"accesses", 40}}, {{"homes", {1}}});
  run["links"] = true;
  const json said = answer(m, run, 0, {});
  double carried = 0;
  for (const json& link : said.at("links")) carried += link.at("share").get<double>();
  const double line_s = 21 * 4 / 3.2e9;  // a request and its data on one link each
  EXPECT_NEAR(carried * said.at("measured_s").get<double>(), 40 * line_s, 0.01 * 40 * line_s);
}

TEST(Requests, OfCpusMeanAllOrThoseNamed) {
  const Ready m(ring());
  const auto reads = [&](const json& cpus) { return answer(m, trial({{"cpus", cpus}}), 0, {}).at("asked"); };
  const auto one = reads({5}).get<std::int64_t>();
  EXPECT_EQ(reads({0, 7}), 2 * one);
  EXPECT_EQ(reads("all"), 8 * one);
  for (const json& wrong : {json::array(), json({8}), json({-1}), json({1.5}), json("some"), json(3)})
    EXPECT_EQ(refused(m, trial({{"cpus", wrong}})), "runs[3].actors[0].cpus") << wrong;
}

TEST(Requests, HomesAreLocalOrUniformOrOtherNodesOrListed) {
  const Ready m(ring());
  const auto latency = [&](const json& homes) {
    json run = trial({{"accesses", 400}}, {{"homes", homes}, {"span_lines", 64}});
    return answer(m, run, 0, {}).at("groups")[0].at("latency_s")[0].get<double>();
  };
  const double local = latency("local"), far = latency({2}), near = latency({1}), others = latency("others");
  const double uniform = latency("uniform");
  EXPECT_LT(local, near);
  EXPECT_LT(near, far);
  EXPECT_DOUBLE_EQ(latency({0}), local);
  EXPECT_NEAR(others, (2 * near + far) / 3, 0.1 * (far - near));
  EXPECT_NEAR(uniform, (local + 2 * near + far) / 4, 0.2 * (far - local));
  EXPECT_NEAR(latency({0, 2}), (local + far) / 2, 0.2 * (far - local));
  json run = trial();
  run["actors"][0]["streams"][0].erase("homes");
  EXPECT_DOUBLE_EQ(answer(m, run, 0, {}).at("groups")[0].at("latency_s")[0].get<double>(),
                   answer(m, trial(), 0, {}).at("groups")[0].at("latency_s")[0].get<double>())
      << "local is the default";
}

TEST(Requests, TimesOfAnActorAreNanoseconds) {
  const Ready m(ring());
  const auto ended_ns = [&](const json& actor, const json& stream = {{"span_lines", 1}}) {
    return 1e9 * answer(m, trial(actor, stream), 0, {}).at("groups")[0].at("ended_s").get<double>();
  };
  const double plain = ended_ns({});
  EXPECT_NEAR(ended_ns({{"start_ns", 5000}}), plain + 5000, 1);
  EXPECT_NEAR(ended_ns({{"think_ns", 100}}), plain + 39 * 100, 101);
  EXPECT_NEAR(ended_ns({{"pace_ns", 1000}}), 39 * 1000 + plain / 40, 200);
  EXPECT_NEAR(ended_ns({{"burst", 10}, {"rest_ns", 1000}}), plain + 3 * 1000, 1100);
  EXPECT_GT(ended_ns({}, {{"span_lines", 1}, {"work_ns", 500}}), plain + 1000);
  EXPECT_LT(ended_ns({{"chains", 4}}), plain / 2);
  const json phases = answer(m, trial({{"burst", 10}, {"rest_ns", 1000}}), 0, {}).at("groups")[0];
  ASSERT_TRUE(phases.contains("phase_s"));
  EXPECT_NEAR(phases.at("phase_s")[0].get<double>(), 1e-9 * plain / 4, 0.2e-9 * plain);
}

TEST(Requests, OfATrialAreRefusedByTheKey) {
  const Ready m(ring());
  const std::pair<json, const char*> wrong[] = {
      {trial({{"chains", 0}}), "actors[0].chains"},
      {trial({{"chains", 65537}}), "actors[0].chains"},
      {trial({{"chains", 2}, {"think_ns", 1}}), "actors[0].think_ns"},
      {trial({{"rest_ns", 1}}), "actors[0].rest_ns"},
      {trial({{"pace_ns", -1}}), "actors[0].pace_ns"},
      {trial({{"start_ns", 1e13}}), "actors[0].start_ns"},
      {trial({{"accesses", -1}}), "actors[0].accesses"},
      {trial({{"group", -1}}), "actors[0].group"},
      {trial({{"streams", json::array()}}), "actors[0].streams"},
      {trial({{"streams", 3}}), "actors[0].streams"},
      {trial({}, {{"op", "wish"}}), "actors[0].streams[0].op"},
      {trial({}, {{"state", "lost"}}), "actors[0].streams[0].state"},
      {trial({}, {{"homes", "away"}}), "actors[0].streams[0].homes"},
      {trial({}, {{"homes", {4}}}), "actors[0].streams[0].homes"},
      {trial({}, {{"owner", 4}}), "actors[0].streams[0].owner"},
      {trial({}, {{"sharers", 256}}), "actors[0].streams[0].sharers"},
      {trial({}, {{"span_lines", 0}}), "actors[0].streams[0].span_lines"},
      {trial({}, {{"stride_bytes", -1}}), "actors[0].streams[0].stride_bytes"},
      {trial({}, {{"work_ns", -1}}), "actors[0].streams[0].work_ns"},
      {trial({}, {{"base_line", -1}}), "actors[0].streams[0].base_line"},
      {trial({{"trace", json::array()}}), "actors[0].trace"},
      {trial({{"trace", json::parse("[[1,4,0]]")}}), "actors[0].trace"},
      {trial({{"trace", json::parse("[[1,0,2]]")}}), "actors[0].trace"},
      {trial({{"trace", json::parse("[[1,0]]")}}), "actors[0].trace"},
      {trial({{"trace", json::parse("[[-1,0,0]]")}}), "actors[0].trace"},
      {trial({{"accesses", 0}}), "measure_ns"},
  };
  for (const auto& [run, key] : wrong) EXPECT_EQ(refused(m, run), std::string("runs[3].") + key) << run.dump();
  for (const char* const key : {"warm_ns", "measure_ns", "window_ns"}) {
    json run = trial();
    run[key] = -1;
    EXPECT_EQ(refused(m, run), std::string("runs[3].") + key);
  }
  json least = trial({{"start_ns", 0}, {"think_ns", 0}, {"pace_ns", 0}, {"burst", 0}, {"rest_ns", 0}, {"group", 0}},
                     {{"work_ns", 0}, {"stride_bytes", 0}, {"base_line", 0}, {"sharers", 0}, {"owner", 0}});
  for (const char* const key : {"warm_ns", "measure_ns", "window_ns"}) least[key] = 0;
  EXPECT_EQ(refused(m, least), "taken");
  for (const int batches : {0, 10001}) {
    json run = trial();
    run["batches"] = batches;
    EXPECT_EQ(refused(m, run), "runs[3].batches");
  }
  EXPECT_EQ(refused(m, {{"kind", "trial"}, {"actors", json::array()}}), "runs[3].actors");
  EXPECT_EQ(refused(m, {{"kind", "trial"}, {"actors", 3}}), "runs[3].actors");
  json endless = trial({{"accesses", 0}});
  endless["measure_ns"] = 1000;
  EXPECT_EQ(refused(m, endless), "taken");
  EXPECT_EQ(refused(m, trial({{"trace", json::parse("[[1,3,1],[2,0,0]]")}})), "taken");

  const Ready network(without(without(ring(), "memory"), "coherence"));
  EXPECT_EQ(refused(network, trial()), "memory");
  EXPECT_EQ(refused(network, {{"kind", "matrix"}}), "memory");
  EXPECT_EQ(refused(network, {{"kind", "hops"}}), "taken");
  json port = trial({{"io", "all"}});
  EXPECT_EQ(refused(Ready(without(ring(), "io")), port), "runs[3].actors[0].io");
  json broadcast = ring();
  broadcast["coherence"] = {{"kind", "broadcast"}};
  EXPECT_EQ(refused(Ready(broadcast), trial({{"trace", json::parse("[[1,3,1]]")}})), "runs[3].actors[0].trace");
}

TEST(Requests, OfATraceAccessEachLineOnce) {
  const Ready m(ring());
  const json said = answer(m, trial({{"trace", json::parse("[[1,3,0],[2,0,0],[1,3,0]]")}}), 0, {});
  EXPECT_EQ(said.at("asked"), 2);
  EXPECT_EQ(said.at("hits"), 1) << "the third access finds the line of the first";
  const json writes = answer(m, trial({{"cpus", {0, 2}}, {"trace", json::parse("[[1,3,1]]")}}), 0, {});
  EXPECT_EQ(writes.at("asked"), 2) << "both own it, one after the other";
}

}  // namespace
