#include "model/requests.hpp"

#include <algorithm>
#include <chrono>

#include "base/error.hpp"
#include "model/closed.hpp"
#include "model/memory/memory.hpp"
#include "model/memory/traffic.hpp"
#include "model/network/table.hpp"

namespace mm::model {

namespace {

/// Replaces entries of the routing tables by the paths of `router.routes`.
void set_routes(const Table& router, const Graph& graph, const RouterRules& rules, Routing& routing) {
  if (!router.has("routes")) return;
  const json& routes = router.at("routes");
  const std::string allowed = "a list of routes [router, next router, ..., last router]";
  if (!routes.is_array()) router.refuse("routes", brief(routes), allowed);
  if (!rules.adaptive)
    router.refuse("routes", "it with routing = \"dimension_order\"", "it with routing = \"adaptive\"");
  std::vector<std::uint32_t> taken;
  for (const json& route : routes) {
    std::vector<std::uint32_t> path;
    if (!route.is_array()) router.refuse("routes", brief(route), allowed);
    for (const json& r : route) {
      if (!r.is_number_unsigned()) router.refuse("routes", brief(r), "numbers of routers");
      path.push_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(r.get<std::uint64_t>(), kNone)));
    }
    routing.set_route(graph, path, taken);
  }
}

}  // namespace

Ready::Ready(const json& machine)
    : graph(build_graph(machine)), routers(router_rules(graph, machine)), routing(graph, routers.channels) {
  const Table router = Table(machine, "").table("router");
  set_routes(router, graph, routers, routing);
  if (!router.flag("deadlock_allowed", false))
    if (const std::string cycle = routing.find_cycle(graph, routers.channels); !cycle.empty())
      throw UsageError(
          "router.escape_channels",
          "found " + std::to_string(routers.channels.escape) + ", with which this routing can deadlock: " + cycle,
          "2 for rings, tori and graphs, 1 for meshes and hypercubes");
  has_memory = machine.contains("memory");
  if (has_memory) nodes = node_rules(graph, machine);
}

namespace {

constexpr double kMaxNs = 1e12;
constexpr std::uint32_t kMaxTrafficNodes = 512;  ///< above, the counts of all pairs of nodes are too many to print

/// Returns one link of an answer, with a value under `key`.
json link_of(const Graph& g, const Output& o, const char* key, const json& value) {
  return json{{"from", o.router},
              {"to", o.to_router},
              {"kind", g.kinds[o.kind].name},
              {"dimension", o.dimension},
              {key, value}};
}

std::vector<std::uint32_t> numbers(const Table& table, const char* key, std::size_t count, const std::string& items) {
  const json& value = table.at(key);
  const std::string allowed =
      "\"all\" or numbers from 0 to " + std::to_string(count == 0 ? 0 : count - 1) + " (" + items + ")";
  std::vector<std::uint32_t> list;
  if (value == "all") {
    for (std::uint32_t i = 0; i < count; ++i) list.push_back(i);
    return list;
  }
  if (!value.is_array() || value.empty()) table.refuse(key, brief(value), allowed);
  for (const json& v : value) {
    if (!v.is_number_integer() || v.get<std::int64_t>() < 0 ||
        v.get<std::int64_t>() >= static_cast<std::int64_t>(count))
      table.refuse(key, brief(v), allowed);
    list.push_back(v.get<std::uint32_t>());
  }
  return list;
}

AccessStream stream_of(const Table& t, const Ready& m) {
  AccessStream s;
  s.op = static_cast<Op>(t.choice("op", {"read", "own", "write"}));
  s.state = static_cast<State>(t.choice("state", {"clean", "dirty", "shared"}));
  if (t.has("homes") && t.at("homes").is_array()) {
    s.nodes = numbers(t, "homes", m.graph.nodes(), "nodes");
    s.homes = s.nodes.size() == 1 ? Homes::fixed : Homes::list;
  } else {
    static constexpr Homes kHomes[] = {Homes::local, Homes::uniform, Homes::others};
    s.homes = kHomes[t.choice("homes", {"local", "uniform", "others"})];
  }
  s.owner = t.integer("owner", 0, static_cast<int>(m.graph.nodes()) - 1, -1);
  if (!t.has("owner")) s.owner = -1;
  s.sharers = t.integer("sharers", 0, 255, 0);
  s.random = t.flag("random", false);
  s.span_lines = static_cast<std::uint64_t>(t.number("span_lines", 1, 1e15, 1 << 24));
  s.stride_bytes = static_cast<std::uint64_t>(t.number("stride_bytes", 0, 1e12, 0));
  s.work = ps(t.number("work_ns", 0, kMaxNs, 0));
  s.base = static_cast<std::uint64_t>(t.number("base_line", 0, 1e15, 0));
  return s;
}

/// Returns the accesses of [[line, home, 0 reads or 1 writes], …].
std::vector<Traced> trace_of(const Table& t, const Ready& m) {
  const json& list = t.at("trace");
  if (!list.is_array() || list.empty()) t.refuse("trace", brief(list), "a list of [line, home, 0 or 1]");
  std::vector<Traced> trace;
  trace.reserve(list.size());
  for (const json& a : list) {
    const bool valid = a.is_array() && a.size() == 3 && a[0].is_number_unsigned() && a[1].is_number_unsigned() &&
                       a[1].get<std::uint64_t>() < m.graph.nodes() && (a[2] == 0 || a[2] == 1);
    if (!valid) t.refuse("trace", brief(a), "[line, home below " + std::to_string(m.graph.nodes()) + ", 0 or 1]");
    trace.push_back({a[0].get<std::uint64_t>(), a[1].get<std::uint32_t>(), a[2] == 1 ? Op::own : Op::read});
  }
  return trace;
}

Trial trial_of(const Table& t, const Ready& m, std::uint64_t seed) {
  Trial trial;
  trial.seed = seed;
  trial.warm = ps(t.number("warm_ns", 0, kMaxNs, 0));
  trial.measure = ps(t.number("measure_ns", 0, kMaxNs, 0));
  trial.check = t.flag("check", false);
  trial.traffic = t.flag("traffic", false);
  if (trial.traffic && m.graph.nodes() > kMaxTrafficNodes)
    t.refuse("traffic", "it with " + std::to_string(m.graph.nodes()) + " nodes",
             "machines of at most " + std::to_string(kMaxTrafficNodes) + " nodes");
  trial.batches = t.integer("batches", 1, 10000, 11);
  trial.window = ps(t.number("window_ns", 0, kMaxNs, 0));
  const std::vector<std::uint32_t> cpus = by_node(m.graph, EndpointKind::cpu), ios = by_node(m.graph, EndpointKind::io);
  const json& actors = t.at("actors");
  if (!actors.is_array() || actors.empty()) t.refuse("actors", brief(actors), "a list of actors");
  bool endless = false;
  for (std::size_t i = 0; i < actors.size(); ++i) {
    const Table a(actors[i], t.path("actors[" + std::to_string(i) + "]"));
    Actor actor;
    actor.chains = a.integer("chains", 1, 65536, 1);
    actor.think = ps(a.number("think_ns", 0, kMaxNs, 0));
    actor.random_think = a.flag("random_think", false);
    actor.pace = ps(a.number("pace_ns", 0, kMaxNs, 0));
    actor.burst = static_cast<std::uint64_t>(a.number("burst", 0, 1e15, 0));
    actor.rest = ps(a.number("rest_ns", 0, kMaxNs, 0));
    actor.random_rest = a.flag("random_rest", false);
    actor.start = ps(a.number("start_ns", 0, kMaxNs, 0));
    actor.accesses = static_cast<std::uint64_t>(a.number("accesses", 0, 1e15, 0));
    actor.group = a.integer("group", 0, 1 << 20, 0);
    if (actor.think > 0 && actor.chains > 1)
      a.refuse("think_ns", "it with chains = " + std::to_string(actor.chains), "it with one chain only");
    if (actor.rest > 0 && actor.burst == 0) a.refuse("rest_ns", "it without burst", "the accesses of a phase in burst");
    static const json no_streams = json::array();
    const json& streams = a.has("trace") ? no_streams : a.at("streams");
    if (a.has("trace")) {
      if (m.nodes.coherence == Coherence::broadcast)
        a.refuse("trace", "it with coherence.kind = \"broadcast\"", "directory, snoop");
      actor.trace = trace_of(a, m);
      actor.accesses = actor.trace.size();
    } else if (!streams.is_array() || streams.empty()) {
      a.refuse("streams", brief(streams), "a list of streams");
    }
    for (std::size_t k = 0; k < streams.size(); ++k)
      actor.streams.push_back(stream_of(Table(streams[k], a.path("streams[" + std::to_string(k) + "]")), m));
    endless = endless || actor.accesses == 0;
    const bool io = a.has("io");
    const auto& pool = io ? ios : cpus;
    if (io && ios.empty()) a.refuse("io", "a machine without I/O ports", "a machine with [io]");
    for (const std::uint32_t n : numbers(a, io ? "io" : "cpus", pool.size(), io ? "I/O ports" : "CPUs")) {
      actor.endpoint = pool[n];
      Actor copy = actor;
      // Arrays of different programs lie in separate pages.
      for (std::size_t k = 0; k < copy.streams.size(); ++k)
        if (!streams[k].contains("base_line"))
          copy.streams[k].base = (trial.actors.size() * 64 + k) * ((1ULL << 26) + 4099);
      trial.actors.push_back(copy);
    }
  }
  if (endless && trial.measure == 0) t.refuse("measure_ns", "0", "a time, or accesses for every actor");
  return trial;
}

json rows_of(const std::vector<std::uint64_t>& values, std::size_t columns) {
  json rows = json::array();
  for (auto row = values.begin(); row != values.end(); row += static_cast<std::ptrdiff_t>(columns))
    rows.push_back(std::vector<std::uint64_t>(row, row + static_cast<std::ptrdiff_t>(columns)));
  return rows;
}

json trial_answer(const Ready& m, const Table& t, std::uint64_t seed, const FrameSink& frames) {
  if (!m.has_memory) throw UsageError("memory", "found nothing", "a table [memory], which this run needs");
  if (m.routers.exclusive)
    throw UsageError("router.channel_sharing", "found \"exclusive\" with " + t.path("kind") + " = \"trial\"",
                     "packets; exclusive is for runs of kind traffic");
  const Trial trial = trial_of(t, m, seed);
  const TrialResult r = simulate(m.graph, m.routing, m.routers, m.nodes, trial, frames);
  const double batch_s = static_cast<double>(r.measured) * 1e-12 / trial.batches;
  json groups = json::array();
  for (const GroupResult& g : r.groups) {
    json latency = json::array(), reads = json::array(), bytes = json::array(), phases = json::array();
    for (std::size_t b = 0; b < g.reads.size(); ++b) {
      if (g.reads[b] > 0) latency.push_back(g.latency_ps[b] / g.reads[b] * 1e-12);
      if (g.phases[b] > 0) phases.push_back(g.phase_ps[b] / g.phases[b] * 1e-12);
      reads.push_back(g.reads[b] / batch_s);
      bytes.push_back(g.bytes[b] / batch_s);
    }
    groups.push_back({{"latency_s", latency},
                      {"reads_per_s", reads},
                      {"bytes_per_s", bytes},
                      {"ended_s", static_cast<double>(g.ended) * 1e-12}});
    if (!phases.empty()) groups.back()["phase_s"] = phases;
  }
  json answer{{"groups", groups},
              {"measured_s", static_cast<double>(r.measured) * 1e-12},
              {"memory_share", r.memory_busy},
              {"packet_hops", r.packet_hops},
              {"asked", r.requested},
              {"answered", r.answered},
              {"hits", r.hits}};
  if (trial.traffic)
    answer["traffic"] = {{"reads", rows_of(r.pairs.reads, m.graph.nodes())},
                         {"writes", rows_of(r.pairs.writes, m.graph.nodes())}};
  if (t.flag("links", false)) {
    json links = json::array();
    for (std::uint32_t o = 0; o < m.graph.outputs.size(); ++o) {
      const Output& out = m.graph.outputs[o];
      if (out.to_router == kNone) continue;
      links.push_back(link_of(m.graph, out, "share", r.output_busy[o]));
    }
    answer["links"] = links;
    json io = json::array();
    for (const Endpoint& e : m.graph.endpoints)
      if (e.kind == EndpointKind::io) io.push_back(r.output_busy[e.output]);
    answer["io_share"] = io;
  }
  return answer;
}

json matrix(const Ready& m, const Table& t) {
  if (!m.has_memory) throw UsageError("memory", "found nothing", "a table [memory], which this run needs");
  const State state = static_cast<State>(t.choice("state", {"clean", "dirty"}));
  const bool open = t.flag("page_open", true);
  std::vector<std::uint32_t> sources;
  if (t.has("nodes"))
    sources = numbers(t, "nodes", m.graph.nodes(), "nodes");
  else
    for (std::uint32_t n = 0; n < m.graph.nodes(); ++n) sources.push_back(n);
  json rows = json::array();
  for (const std::uint32_t a : sources) {
    json row = json::array();
    for (std::uint32_t b = 0; b < m.graph.nodes(); ++b) {
      if (m.graph.cpus_of[a].empty() || m.graph.memories_of[b].empty())
        row.push_back(nullptr);
      else
        row.push_back(static_cast<double>(zero_load(m.graph, m.routing, m.routers, m.nodes, m.graph.cpus_of[a].front(),
                                                    b, 0, state, b, open)) *
                      1e-12);
    }
    rows.push_back(row);
  }
  return json{{"latency_s", rows}};
}

json hops(const Ready& m) {
  json rows = json::array();
  for (std::uint32_t a = 0; a < m.graph.nodes(); ++a) {
    json row = json::array();
    for (std::uint32_t b = 0; b < m.graph.nodes(); ++b)
      row.push_back(m.routing.distance(m.graph.node_router[a], m.graph.node_router[b]));
    rows.push_back(row);
  }
  return json{{"hops", rows}};
}

json describe(const Ready& m) {
  json routers = json::array(), links = json::array();
  std::size_t cpus = 0, memories = 0, ios = 0;
  for (const Endpoint& e : m.graph.endpoints)
    (e.kind == EndpointKind::cpu ? cpus : e.kind == EndpointKind::memory ? memories : ios) += 1;
  for (std::uint32_t r = 0; r < m.graph.routers(); ++r) {
    json place = json::array();
    if (!m.graph.shape.empty() && !m.graph.is_bus(r))
      for (std::size_t d = 0; d < m.graph.shape.size(); ++d)
        place.push_back(m.graph.coordinate(r, static_cast<int>(d)));
    routers.push_back({{"router", r}, {"bus", m.graph.is_bus(r)}, {"place", place}});
  }
  const double flit_bytes = m.routers.flit_bytes;
  for (const Output& o : m.graph.outputs) {
    if (o.to_router == kNone) continue;
    links.push_back(link_of(m.graph, o, "direction", o.direction));
    if (o.fs_per_flit > 0) links.back()["bytes_per_s"] = flit_bytes * 1e15 / static_cast<double>(o.fs_per_flit);
  }
  json nodes = json::array();
  for (std::uint32_t n = 0; n < m.graph.nodes(); ++n)
    nodes.push_back({{"node", n},
                     {"router", m.graph.node_router[n]},
                     {"cpus", m.graph.cpus_of[n].size()},
                     {"memories", m.graph.memories_of[n].size()},
                     {"io", m.graph.ios_of[n].size()}});
  // In the order of values in frames.
  const auto nodes_of = [&](EndpointKind kind) {
    json list = json::array();
    for (const std::uint32_t e : by_node(m.graph, kind)) list.push_back(m.graph.endpoints[e].node);
    return list;
  };
  json shape;
  if (m.has_memory) {
    const MemoryControllers controllers(m.graph, m.nodes);
    json rates = json::array();
    for (const std::uint32_t e : by_node(m.graph, EndpointKind::memory))
      rates.push_back(controllers.bytes_per_s(m.graph.endpoints[e].index));
    shape = {{"memory_bytes_per_s", rates},
             {"line_bytes", m.nodes.memory.line_bytes},
             {"packet_bytes",
              {{"request", m.nodes.packets.request_flits * flit_bytes},
               {"data", m.nodes.packets.data_flits * flit_bytes},
               {"ack", m.nodes.packets.ack_flits * flit_bytes}}},
             {"probes_all", m.nodes.coherence == Coherence::broadcast}};
  }
  shape.update(json{{"nodes", nodes},
                    {"cpu_nodes", nodes_of(EndpointKind::cpu)},
                    {"memory_nodes", nodes_of(EndpointKind::memory)},
                    {"io_nodes", nodes_of(EndpointKind::io)},
                    {"routers", routers},
                    {"links", links},
                    {"cpus", cpus},
                    {"memories", memories},
                    {"io_ports", ios},
                    {"table_bytes", m.routing.bytes()}});
  return shape;
}

json loads(const Ready& m) {
  json links = json::array();
  const std::vector<double> share = uniform_loads(m.graph, m.routing);
  for (std::uint32_t o = 0; o < m.graph.outputs.size(); ++o) {
    const Output& out = m.graph.outputs[o];
    if (out.to_router == kNone) continue;
    links.push_back(link_of(m.graph, out, "share", share[o]));
  }
  return json{{"links", links}};
}

}  // namespace

json answer(const Ready& machine, const json& run, std::size_t number, const FrameSink& frames) {
  if (!run.is_object()) throw UsageError("runs[" + std::to_string(number) + "]", "found " + brief(run), "an object");
  const Table table(run, "runs[" + std::to_string(number) + "]");
  const std::string kind = table.text("kind", "");
  const auto seed = static_cast<std::uint64_t>(table.number("seed", 0, 1e15, 1));
  json line{{"type", "answer"}, {"run", number}, {"kind", kind}};
  if (run.contains("id")) line["id"] = run.at("id");
  json answer_fields;
  if (kind == "trial")
    answer_fields = trial_answer(machine, table, seed, frames);
  else if (kind == "traffic")
    answer_fields = run_traffic(machine.graph, machine.routing, machine.routers, table, seed);
  else if (kind == "matrix")
    answer_fields = matrix(machine, table);
  else if (kind == "hops")
    answer_fields = hops(machine);
  else if (kind == "loads")
    answer_fields = loads(machine);
  else if (kind == "describe")
    answer_fields = describe(machine);
  else
    table.refuse("kind", '"' + kind + '"', "trial, traffic, matrix, hops, loads, describe");
  line.update(answer_fields);
  return line;
}

}  // namespace mm::model
