/// The simulator against queueing theory, its closed form, and invariants of every machine.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/error.hpp"
#include "model/closed.hpp"
#include "model/requests.hpp"

namespace {

using mm::json;
using namespace mm::model;

json link_kinds() {
  return {{"short", {{"bandwidth_gb_per_s", 3.2}, {"latency_ns", 3.5}}},
          {"long", {{"bandwidth_gb_per_s", 3.2}, {"latency_ns", 11.25}}}};
}

/// A whole machine on a topology: two controllers per node, directory coherence.
json machine_on(json topology) {
  if (!topology.contains("links")) topology["links"] = "short";
  return {{"topology", std::move(topology)},
          {"links", link_kinds()},
          {"node", {{"cpus", 1}, {"controllers", 2}, {"leave_ns", 1.5}, {"port_gb_per_s", 6.4}}},
          {"router", {{"flit_bytes", 4}, {"pipeline_ns", 11.2}, {"cycle_ns", 0.9}, {"buffer_flits", 40}}},
          {"packets", {{"request_flits", 3}, {"data_flits", 18}}},
          {"cpu", {{"outstanding", 16}, {"request_ns", 20}, {"fill_ns", 10}, {"probe_ns", 15}}},
          {"memory",
           {{"channel_gb_per_s", 6.1}, {"access_ns", 50}, {"activate_ns", 50}, {"page_bytes", 2048}, {"banks", 64}}},
          {"coherence", {{"kind", "directory"}, {"directory_ns", 30}}}};
}

std::vector<json> topologies() {
  return {{{"kind", "torus"}, {"shape", {4, 4}}, {"links", {{"short", "long"}, {"long"}}}},
          {{"kind", "torus"}, {"shape", {2, 4}}},
          {{"kind", "torus"}, {"shape", {2, 2}}, {"double_links_of_two", true}},
          {{"kind", "torus"}, {"shape", {3, 4, 2}}},
          {{"kind", "mesh"}, {"shape", {5, 3}}},
          {{"kind", "ring"}, {"shape", {8}}},
          {{"kind", "hypercube"}, {"dimensions", 4}},
          {{"kind", "fat_tree"}, {"arity", 2}, {"levels", 3}},
          {{"kind", "fat_tree"}, {"arity", 4}, {"levels", 2}, {"parents", 2}},
          {{"kind", "crossbar"}, {"nodes", 6}},
          {{"kind", "switches"}, {"radix", {4, 3}}},
          {{"kind", "graph"},
           {"routers", 6},
           {"edges",
            {{0, 1, "short"},
             {1, 2, "short"},
             {2, 3, "long"},
             {3, 0, "short"},
             {1, 4, "long"},
             {4, 5, "short"},
             {5, 2, "short"}}}}};
}

std::string name(const json& topology) { return topology.dump(); }

Trial one_reader(const Ready& m, std::uint32_t cpu_node, std::uint32_t home, State state = State::clean,
                 int owner = -1) {
  Stream stream;
  stream.homes = Homes::fixed;
  stream.nodes = {home};
  stream.state = state;
  stream.owner = owner;
  stream.span_lines = 1;  // a single line: its page is open after the first access
  Actor actor;
  actor.endpoint = m.graph.cpus_of[cpu_node].front();
  actor.accesses = 4;
  actor.streams = {stream};
  Trial trial;
  trial.actors = {actor};
  trial.batches = 5;
  return trial;
}

/// Latency of the last of a few dependent reads, ps.
double simulated(const Ready& m, const Trial& trial) {
  const TrialResult r = simulate(m.graph, m.routing, m.routers, m.nodes, trial);
  EXPECT_EQ(r.requested, r.answered);
  EXPECT_TRUE(r.credits_back);
  return r.groups[0].latency_ps[4] / r.groups[0].reads[4];
}

TEST(Model, ZeroLoadEqualsTheClosedFormToThePicosecondOnEveryTopology) {
  for (const json& topology : topologies())
    for (const bool adaptive : {true, false}) {
      json machine = machine_on(topology);
      const std::string kind = topology.at("kind");
      const bool tree = kind == "fat_tree" || kind == "crossbar" || kind == "switches" || kind == "graph";
      if (!adaptive && tree) continue;
      if (!adaptive) machine["router"]["routing"] = "dimension_order";
      const Ready m(machine);
      for (std::uint32_t a = 0; a < m.graph.nodes(); a += 2)
        for (std::uint32_t b = 0; b < m.graph.nodes(); ++b) {
          const auto cpu = m.graph.cpus_of[a].front();
          EXPECT_EQ(
              simulated(m, one_reader(m, a, b)),
              static_cast<double>(zero_load(m.graph, m.routing, m.routers, m.nodes, cpu, b, 0, State::clean, 0, true)))
              << name(topology) << " " << a << " to " << b;
          const std::uint32_t owner = (b + 1) % m.graph.nodes();
          if (owner == a) continue;
          EXPECT_EQ(simulated(m, one_reader(m, a, b, State::dirty, static_cast<int>(owner))),
                    static_cast<double>(
                        zero_load(m.graph, m.routing, m.routers, m.nodes, cpu, b, 0, State::dirty, owner, true)))
              << name(topology) << " dirty " << a << " to " << b;
        }
    }
}

TEST(Model, ABusAndBroadcastAreInTheClosedFormToo) {
  json machine = machine_on({{"kind", "switches"}, {"radix", {3}}});
  machine["node"]["cpus"] = 4;
  machine["node"]["bus"] = {{"cpus_per_bus", 2}, {"bandwidth_gb_per_s", 6.4}, {"latency_ns", 2}, {"turnaround_ns", 7}};
  for (const char* kind : {"directory", "snoop"}) {
    machine["coherence"]["kind"] = kind;
    const Ready m(machine);
    EXPECT_EQ(m.graph.cpus_of[1].size(), 4U);
    for (std::uint32_t b = 0; b < 3; ++b)
      EXPECT_EQ(simulated(m, one_reader(m, 1, b)),
                static_cast<double>(zero_load(m.graph, m.routing, m.routers, m.nodes, m.graph.cpus_of[1].front(), b, 0,
                                              State::clean, 0, true)))
          << kind << " " << b;
  }
  machine["coherence"]["kind"] =
      "broadcast";  // answers to probes and data contend for the bus, so the closed form is a bound
  const Ready bus(machine);
  for (std::uint32_t b = 0; b < 3; ++b)
    EXPECT_GE(simulated(bus, one_reader(bus, 1, b)),
              static_cast<double>(zero_load(bus.graph, bus.routing, bus.routers, bus.nodes,
                                            bus.graph.cpus_of[1].front(), b, 0, State::clean, 0, true)));
  json pair = machine_on({{"kind", "graph"}, {"routers", 2}, {"edges", {{0, 1, "long"}}}});
  pair["coherence"]["kind"] = "broadcast";
  for (const double probe : {5.0, 90.0}) {  // slower memory, slower probed core
    pair["cpu"]["probe_ns"] = probe;
    const Ready m(pair);
    for (std::uint32_t b = 0; b < 2; ++b)
      EXPECT_EQ(simulated(m, one_reader(m, 0, b)),
                static_cast<double>(zero_load(m.graph, m.routing, m.routers, m.nodes, m.graph.cpus_of[0].front(), b, 0,
                                              State::clean, 0, true)))
          << probe << " " << b;
  }
}

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

TEST(Model, OneQueueIsMD1) {
  // Two sources feed one output through a crossbar without delay: M/D/1 at the output.
  const json machine = {
      {"topology", {{"kind", "single"}}},
      {"node", {{"cpus", 60}, {"controllers", 0}}},
      {"links", json::object()},
      {"router", {{"message_classes", 1}, {"cycle_ns", 1.0}, {"local_arbiters", 1}, {"buffer_flits", 8}}}};
  json with_port = machine;
  with_port["node"]["port_gb_per_s"] =
      8.0;  // one flit per cycle out; the input rate has little effect on Poisson arrivals
  const Ready m(with_port);
  for (const double rho : {0.3, 0.6, 0.8}) {
    const json run = {{"kind", "traffic"}, {"pattern", "hot_spot"}, {"load", rho / 60},
                      {"poisson", true},   {"packets", 400000},     {"warm_packets", 20000}};
    const json said = answer(m, run, 0, {});
    const double wait = said.at("latency_cycles").get<double>() - 1.0;  // service is one cycle
    const double theory = rho / (2 * (1 - rho));
    EXPECT_NEAR(1 + wait, 1 + theory, 0.01 * (1 + theory)) << rho;
  }
}

TEST(Model, EveryRequestIsAnsweredOnceAndAllCreditsComeBack) {
  for (const json& topology : topologies()) {
    const Ready m(machine_on(topology));
    Trial trial;
    trial.batches = 1;
    for (std::uint32_t n = 0; n < m.graph.nodes(); ++n) {
      Actor actor;
      actor.endpoint = m.graph.cpus_of[n].front();
      actor.chains = 16;
      actor.accesses = 600;
      Stream read, own, write;
      read.homes = Homes::uniform;
      own = read;
      own.op = Op::own;
      own.state = n % 2 ? State::shared : State::dirty;
      own.owner = static_cast<int>((n + 1) % m.graph.nodes());
      own.sharers = 2;
      write.op = Op::write;
      write.homes = Homes::fixed;
      write.nodes = {0};
      actor.streams = {read, own, write};
      trial.actors.push_back(actor);
    }
    const TrialResult r = simulate(m.graph, m.routing, m.routers, m.nodes, trial);
    EXPECT_EQ(r.requested, 600U * m.graph.nodes()) << name(topology);
    EXPECT_EQ(r.requested, r.answered) << name(topology);
    EXPECT_TRUE(r.credits_back) << name(topology);
  }
}

TEST(Model, NeverAboveLittleOrAChannel) {
  const Ready m(machine_on({{"kind", "torus"}, {"shape", {4, 4}}}));
  for (const int chains : {1, 4, 16}) {
    Trial trial;
    trial.warm = 5'000'000;
    trial.measure = 40'000'000;
    for (std::uint32_t n = 0; n < m.graph.nodes(); ++n) {
      Actor actor;
      actor.endpoint = m.graph.cpus_of[n].front();
      actor.chains = chains;
      Stream s;
      s.homes = Homes::fixed;
      s.nodes = {0};
      actor.streams = {s};
      trial.actors.push_back(actor);
    }
    const TrialResult r = simulate(m.graph, m.routing, m.routers, m.nodes, trial);
    double reads = 0, latency = 0, bytes = 0;
    for (std::size_t b = 0; b < r.groups[0].reads.size(); ++b)
      reads += r.groups[0].reads[b], latency += r.groups[0].latency_ps[b], bytes += r.groups[0].bytes[b];
    const double seconds = static_cast<double>(r.measured) * 1e-12;
    const double mean_s = latency / reads * 1e-12;
    EXPECT_LE(reads / seconds * mean_s, 16.0 * chains * 1.02);  // Little's law, with tolerance for the window's edge
    EXPECT_LE(bytes / seconds, 2 * 6.1e9 * 1.01);               // two channels at node 0
    for (const double share : r.output_busy) EXPECT_LE(share, 1.0 + 1e-9);
    for (const double share : r.memory_busy) EXPECT_LE(share, 1.0 + 1e-9);
  }
}

/// One core that reads (and writes) memory of its node for `measure`.
TrialResult one_core(const Ready& m, const Actor& like, Time measure = 40'000'000) {
  Trial trial;
  trial.warm = 5'000'000;
  trial.measure = measure;
  trial.batches = 1;
  trial.actors = {like};
  trial.actors[0].endpoint = m.graph.cpus_of[0].front();
  return simulate(m.graph, m.routing, m.routers, m.nodes, trial);
}

double bytes_per_s(const TrialResult& r) { return r.groups[0].bytes[0] / (static_cast<double>(r.measured) * 1e-12); }

Stream local(Op op) {
  Stream s;
  s.op = op;
  return s;
}

TEST(Model, ARouterTakesThePacketsOfASourceWhileOthersAreInItsPipeline) {
  json machine = machine_on({{"kind", "ring"}, {"shape", {4}}});
  machine["node"]["bypass"] = false;
  machine["node"]["controllers"] = 1;
  machine["memory"].erase("page_bytes");
  machine["cpu"]["outstanding"] = 64;
  Actor actor;
  actor.chains = 64;
  actor.streams = {local(Op::read)};
  for (const double pipeline : {1.0, 60.0}) {  // 60 ns is six times the occupancy of a line
    machine["router"]["pipeline_ns"] = pipeline;
    // 18 flits of 4 bytes per line through ports of 6.4 GB/s.
    EXPECT_NEAR(bytes_per_s(one_core(Ready(machine), actor)), 5.69e9, 0.03 * 5.69e9) << pipeline;
  }
}

TEST(Model, WritesThatHoldTheBuffersOfReadsCountAmongThem) {
  json machine = machine_on({{"kind", "ring"}, {"shape", {4}}});
  machine["cpu"]["outstanding"] = 2;
  machine["cpu"]["write_buffers"] = 16;
  Actor actor;
  actor.chains = 2;
  actor.streams = {local(Op::write)};
  const double apart = bytes_per_s(one_core(Ready(machine), actor));
  machine["cpu"]["write_buffers_apart"] = false;
  const double shared = bytes_per_s(one_core(Ready(machine), actor));
  EXPECT_LT(shared, 0.5 * apart);
  // Little's law: two outstanding lines, each for at least the request's and its channel's time.
  EXPECT_LE(shared, 2 * 64 / (20e-9 + 64 / 6.1e9) * 1.01);
}

TEST(Model, ACoreWorksOnTheLinesOfAStreamAndNotOnThoseOfAnother) {
  const Ready m(machine_on({{"kind", "ring"}, {"shape", {4}}}));
  Actor actor;
  actor.chains = 16;
  actor.streams = {local(Op::read), local(Op::write)};
  actor.streams[0].work = 100'000;
  EXPECT_NEAR(bytes_per_s(one_core(m, actor)), 2 * 64 / 100e-9, 0.02 * 2 * 64 / 100e-9);
  actor.streams[1].work = 60'000;
  EXPECT_NEAR(bytes_per_s(one_core(m, actor)), 2 * 64 / 160e-9, 0.02 * 2 * 64 / 160e-9);
}

TEST(Model, AProgramRestsBetweenItsMemoryPhases) {
  json machine = machine_on({{"kind", "ring"}, {"shape", {4}}});
  machine["node"]["cpus"] = 2;
  machine["memory"].erase("page_bytes");
  const Ready m(machine);
  Actor actor;
  actor.chains = 16;
  actor.burst = 256;
  actor.streams = {local(Op::read)};
  const TrialResult busy = one_core(m, actor);
  const double phase = busy.groups[0].phase_ps[0] / busy.groups[0].phases[0];
  EXPECT_NEAR(phase, 256 * 64 / 12.2e9 * 1e12, 0.1 * phase);  // both channels, plus the latency
  actor.rest = static_cast<Time>(3 * phase);
  const TrialResult alone = one_core(m, actor, 400'000'000);
  EXPECT_NEAR(alone.groups[0].phase_ps[0] / alone.groups[0].phases[0], phase, 1);
  EXPECT_NEAR(bytes_per_s(alone), 256 * 64 / (4 * phase * 1e-12), 0.03 * bytes_per_s(alone));
  actor.random_rest = true;
  EXPECT_NEAR(bytes_per_s(one_core(m, actor, 4'000'000'000)), bytes_per_s(alone), 0.05 * bytes_per_s(alone));

  // Two in step share the channels in every phase; two with random phases share them sometimes.
  const auto together = [&](bool random) {
    Trial trial;
    trial.warm = 5'000'000;
    trial.measure = 2'000'000'000;
    trial.batches = 1;
    actor.random_rest = random;
    for (const std::uint32_t cpu : m.graph.cpus_of[0]) {
      actor.endpoint = cpu;
      trial.actors.push_back(actor);
    }
    const TrialResult r = simulate(m.graph, m.routing, m.routers, m.nodes, trial);
    return r.groups[0].phase_ps[0] / r.groups[0].phases[0] / phase;
  };
  EXPECT_NEAR(together(false), 1.95, 0.1);  // alone it does not quite saturate them
  const double apart = together(true);
  EXPECT_GT(apart, 1.1);
  EXPECT_LT(apart, 1.6);
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
      Stream s;
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
    EXPECT_NE(std::string(e.what()).find("router 1"), std::string::npos) << e.what();
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
    Stream write;
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

TEST(Model, WrongMachinesAreRefusedByKey) {
  const auto refused = [](const json& machine) -> std::string {
    try {
      const Ready m(machine);
    } catch (const mm::UsageError& e) {
      return e.field;
    }
    return "taken";
  };
  const json good = machine_on({{"kind", "torus"}, {"shape", {4, 4}}});
  EXPECT_EQ(refused(good), "taken");
  json m = good;
  m["topology"]["shape"] = {4, 0};
  EXPECT_EQ(refused(m), "topology.shape");
  m["topology"]["shape"] = {4, 4'294'967'300};  // four, if truncated to 32 bits
  EXPECT_EQ(refused(m), "topology.shape");
  m = good, m["topology"]["links"] = "copper";
  EXPECT_EQ(refused(m), "topology.links");
  m = good, m["links"]["short"]["bandwidth_gb_per_s"] = -1;
  EXPECT_EQ(refused(m), "links.short.bandwidth_gb_per_s");
  m = good, m["links"]["long"].erase("latency_ns");
  EXPECT_EQ(refused(m), "links.long.latency_ns");
  m = good, m["router"]["buffer_flits"] = 10;
  EXPECT_EQ(refused(m), "router.buffer_flits");
  m = good, m["topology"] = {{"kind", "graph"}, {"routers", 3}, {"edges", {{0, 1, "short"}}}};
  EXPECT_EQ(refused(m), "topology.kind");
  m = good, m["cpu"].erase("outstanding");
  EXPECT_EQ(refused(m), "cpu.outstanding");
  m = good, m["router"]["adaptive_channels"] = 60;
  EXPECT_EQ(refused(m), "router.adaptive_channels");
  m = good, m["node"]["cpus"] = 0;
  EXPECT_EQ(refused(m), "node.cpus");
  m.erase("memory");
  EXPECT_EQ(refused(m), "taken");  // a network alone is valid
  m = good, m["node"]["controllers"] = 0;
  EXPECT_EQ(refused(m), "node.controllers");
}

TEST(Model, TheSameSeedGivesTheSameBytes) {
  const Ready m(machine_on({{"kind", "torus"}, {"shape", {4, 4}}}));
  const json run = {
      {"kind", "trial"},
      {"seed", 5},
      {"measure_ns", 5000},
      {"links", true},
      {"window_ns", 1000},
      {"actors", {{{"cpus", "all"}, {"chains", 8}, {"streams", {{{"homes", "others"}, {"random", true}}}}}}}};
  std::string frames[2];
  std::string answers[2];
  for (int i = 0; i < 2; ++i)
    answers[i] = answer(m, run, 0, [&](const json& frame) { frames[i] += frame.dump(); }).dump();
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_EQ(frames[0], frames[1]);
  EXPECT_FALSE(frames[0].empty());
  json other = run;
  other["seed"] = 6;
  EXPECT_NE(answer(m, other, 0, {}).dump(), answers[0]);
}

TEST(Calendar, EventsLeaveInOrderWhateverTheWidth) {
  for (const int shift : {0, 4, 9, 16}) {
    Calendar calendar(shift);
    Draws draws(3, 1);
    std::multiset<Time> waiting;
    Time now = 0;
    for (int i = 0; i < 20000; ++i) {
      if (waiting.empty() || draws.below(5) < 3) {
        const Time at = now + static_cast<Time>(draws.below(draws.below(50) == 0 ? 1U << 30 : 3000));
        calendar.push(at, 0, 0);
        waiting.insert(at);
      } else {
        const Event event = calendar.pop();
        EXPECT_EQ(event.at, *waiting.begin());
        waiting.erase(waiting.begin());
        now = event.at;
      }
    }
    while (!calendar.empty()) {
      EXPECT_EQ(calendar.pop().at, *waiting.begin());
      waiting.erase(waiting.begin());
    }
    EXPECT_TRUE(waiting.empty());
  }
}

}  // namespace

namespace {

/// All CPUs read and write a few lines at random, concurrently.
Trial shared_lines(const Ready& m, std::uint64_t seed, std::uint64_t lines, std::size_t accesses, int chains) {
  Trial trial;
  trial.batches = 1;
  trial.check = true;
  Draws draws(seed, 0);
  for (std::uint32_t n = 0; n < m.graph.nodes(); ++n)
    for (const std::uint32_t cpu : m.graph.cpus_of[n]) {
      Actor actor;
      actor.endpoint = cpu;
      actor.chains = chains;
      for (std::size_t i = 0; i < accesses; ++i) {
        const std::uint64_t line = draws.below(lines);
        actor.trace.push_back(
            {line, static_cast<std::uint32_t>(line % m.graph.nodes()), draws.below(3) == 0 ? Op::own : Op::read});
      }
      actor.accesses = accesses;
      trial.actors.push_back(actor);
    }
  return trial;
}

TEST(Model, AtMostOneCoreWritesALineOfATrace) {
  for (const json& topology : topologies())
    for (const int chains : {1, 4}) {
      const Ready m(machine_on(topology));
      const TrialResult r = simulate(m.graph, m.routing, m.routers, m.nodes, shared_lines(m, 11, 8, 300, chains));
      EXPECT_EQ(r.requested, r.answered) << name(topology);
      EXPECT_EQ(r.requested + r.hits, 300U * m.graph.endpoints.size() / 3) << name(topology);
      EXPECT_GT(r.hits, 0U);
      EXPECT_TRUE(r.credits_back);
    }
  json bus = machine_on({{"kind", "switches"}, {"radix", {3}}});
  bus["node"]["cpus"] = 4;
  bus["node"]["bus"] = {{"cpus_per_bus", 2}, {"bandwidth_gb_per_s", 6.4}, {"turnaround_ns", 7}};
  bus["coherence"]["kind"] = "snoop";
  const Ready m(bus);
  const TrialResult r = simulate(m.graph, m.routing, m.routers, m.nodes, shared_lines(m, 12, 5, 300, 2));
  EXPECT_EQ(r.requested, r.answered);
}

TEST(Model, ATraceTakesTheLegsOfItsProtocol) {
  const Ready m(machine_on({{"kind", "torus"}, {"shape", {4, 4}}}));
  const auto cpu = [&](std::uint32_t node) { return m.graph.cpus_of[node].front(); };
  Actor writer, reader;
  writer.endpoint = cpu(5);
  writer.trace = {{7, 2, Op::own}, {7, 2, Op::own}, {7, 2, Op::read}};  // the second and third are hits
  reader.endpoint = cpu(0);
  reader.trace = {{7, 2, Op::read}, {7, 2, Op::read}};  // from the writer's cache; then a hit
  reader.start = 5'000'000;
  writer.accesses = 3, reader.accesses = 2;
  reader.group = 1;
  Trial trial;
  trial.actors = {writer, reader};
  trial.batches = 1;
  trial.check = true;
  const TrialResult r = simulate(m.graph, m.routing, m.routers, m.nodes, trial);
  EXPECT_EQ(r.requested, 2U);
  EXPECT_EQ(r.hits, 3U);
  EXPECT_EQ(r.groups[0].latency_ps[0], static_cast<double>(zero_load(m.graph, m.routing, m.routers, m.nodes, cpu(5), 2,
                                                                     1, State::clean, 0, false)));
  EXPECT_EQ(r.groups[1].latency_ps[0], static_cast<double>(zero_load(m.graph, m.routing, m.routers, m.nodes, cpu(0), 2,
                                                                     1, State::dirty, 5, true)));
}

}  // namespace
