/// The simulator against queueing theory, its closed form, and invariants of every machine.
#include <gtest/gtest.h>

#include <set>

#include "base/error.hpp"
#include "model/closed.hpp"
#include "model/requests.hpp"
#include "model_machines.hpp"

namespace {

using mm::json;
using namespace mm::model;

Trial one_reader(const Ready& m, std::uint32_t cpu_node, std::uint32_t home, State state = State::clean,
                 int owner = -1) {
  AccessStream stream;
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

TEST(Model, OneQueueIsMD1) {
  // Many sources feed one output through a crossbar without delay: M/D/1 at the output.
  for (const int cpus : {60, 480}) {
    json machine = {
        {"topology", {{"kind", "single"}}},
        {"node", {{"cpus", cpus}, {"controllers", 0}}},
        {"links", json::object()},
        {"router", {{"message_classes", 1}, {"cycle_ns", 1.0}, {"local_arbiters", 1}, {"buffer_flits", 8}}}};
    // One flit per cycle out; the input rate has little effect on Poisson arrivals.
    machine["node"]["port_gb_per_s"] = 8.0;
    const Ready m(machine);
    for (const double rho : {0.3, 0.6, 0.8}) {
      const json run = {{"kind", "traffic"}, {"pattern", "hot_spot"}, {"load", rho / cpus},
                        {"poisson", true},   {"packets", 400000},     {"warm_packets", 20000}};
      const json said = answer(m, run, 0, {});
      const double wait = said.at("latency_cycles").get<double>() - 1.0;  // service is one cycle
      const double theory = rho / (2 * (1 - rho));
      EXPECT_NEAR(1 + wait, 1 + theory, 0.01 * (1 + theory)) << cpus << " CPUs, " << rho;
    }
  }
}

TEST(Model, ANodeOf512CpusServesThemAllInTurn) {
  json machine = machine_on({{"kind", "single"}});
  machine["node"]["cpus"] = 512;
  const Ready m(machine);
  json actors = json::array();
  for (const int cpu : {0, 63, 64, 255, 256, 511})
    actors.push_back({{"cpus", {cpu}},
                      {"chains", 4},
                      {"group", actors.size()},
                      {"streams", {{{"homes", "local"}, {"random", true}}}}});
  json others = actors[0];
  others["group"] = actors.size();
  others["cpus"] = json::array();
  for (int cpu = 1; cpu < 511; ++cpu)
    if (cpu % 64 != 63 && cpu != 64 && cpu != 256) others["cpus"].push_back(cpu);
  actors.push_back(others);
  const json run = {
      {"kind", "trial"}, {"warm_ns", 200000}, {"measure_ns", 4000000}, {"batches", 1}, {"actors", actors}};
  const json groups = answer(m, run, 0, {}).at("groups");
  const double per_cpu = groups[6].at("reads_per_s")[0].get<double>() / static_cast<double>(others["cpus"].size());
  EXPECT_GT(per_cpu, 0);
  for (std::size_t g = 0; g < 6; ++g)
    EXPECT_NEAR(groups[g].at("reads_per_s")[0].get<double>() / per_cpu, 1, 0.1) << actors[g].at("cpus");
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
      AccessStream read, own, write;
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
      AccessStream s;
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
  m = good, m["node"]["cpus"] = 513;
  EXPECT_EQ(refused(m), "node.cpus");
  json edges = json::array();
  for (int r = 1; r <= 65; ++r) edges.push_back({0, r, "short"});
  m = good, m["topology"] = {{"kind", "graph"}, {"routers", 66}, {"edges", edges}};
  EXPECT_EQ(refused(m), "topology.kind") << "a router with 65 links";
}

TEST(Model, FlitsNeedRoutersOfFewPorts) {
  json machine = machine_on({{"kind", "mesh"}, {"shape", {2, 2}}});
  machine["node"]["cpus"] = 70;
  machine["router"]["routing"] = "dimension_order";
  machine["router"]["channel_sharing"] = "exclusive";
  const Ready m(machine);
  try {
    answer(m, {{"kind", "traffic"}, {"pattern", "uniform"}, {"load", 0.1}, {"packets", 100}}, 0, {});
    FAIL() << "not refused";
  } catch (const mm::UsageError& e) {
    EXPECT_EQ(e.field, "router.channel_sharing");
  }
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
