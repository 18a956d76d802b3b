/// Cores of the simulator: their buffers and work, the phases of programs, and traces of shared lines.
#include <gtest/gtest.h>

#include "model/closed.hpp"
#include "model/requests.hpp"
#include "model_machines.hpp"

namespace {

using mm::json;
using namespace mm::model;

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

AccessStream local(Op op) {
  AccessStream s;
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
