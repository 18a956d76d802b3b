#pragma once
/// Machines on every kind of topology, for tests of the simulator.
#include <string>
#include <utility>
#include <vector>

#include "base/json.hpp"

inline mm::json link_kinds() {
  return {{"short", {{"bandwidth_gb_per_s", 3.2}, {"latency_ns", 3.5}}},
          {"long", {{"bandwidth_gb_per_s", 3.2}, {"latency_ns", 11.25}}}};
}

/// A whole machine on a topology: two controllers per node, directory coherence.
inline mm::json machine_on(mm::json topology) {
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

inline std::vector<mm::json> topologies() {
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

inline std::string name(const mm::json& topology) { return topology.dump(); }
