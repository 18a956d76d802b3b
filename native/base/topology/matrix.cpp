#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "error.hpp"
#include "input_file.hpp"
#include "json.hpp"
#include "topology.hpp"

namespace mm {

void use_matrix(Machine& machine, const std::string& file) {
  const auto wrong = [&](const std::string& what, const std::string& allowed) -> UsageError {
    return {"matrix", shown_path(file) + ": " + what, allowed};
  };
  const json given = parse_json(read_input_of("matrix", file));
  if (!given.is_object())
    throw wrong("found no JSON object", R"({"nodes": […], "unit": …, "what": …, "values": [[…]]})");
  for (const char* key : {"nodes", "unit", "what", "values"})
    if (!given.contains(key)) throw wrong(std::string("found no '") + key + "'", "nodes, unit, what, values, better");
  for (const char* key : {"unit", "what"})
    if (!given[key].is_string()) throw wrong(std::string(key) + ": found " + shown_json(given[key]), "a text");
  const bool higher = given.contains("better") && given["better"] == "higher";
  if (given.contains("better") && !higher && given["better"] != "lower")
    throw wrong("better: found " + shown_json(given["better"]), "lower, higher");
  const json &nodes = given["nodes"], &values = given["values"];
  if (!nodes.is_array() || !values.is_array() || nodes.size() != values.size())
    throw wrong("found " + std::to_string(nodes.size()) + " nodes and " + std::to_string(values.size()) + " rows",
                "a row and a column a node");

  std::map<int, std::size_t> row;  // OS index → row of the file
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (!nodes[i].is_number_integer()) throw wrong("nodes: found " + shown_json(nodes[i]), "OS indices of nodes");
    const int id = nodes[i].get<int>();
    machine.node_at(id);
    if (!row.emplace(id, i).second) throw wrong("nodes: found " + std::to_string(id) + " twice", "each node once");
  }
  const double unknown = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> distance(machine.nodes.size(), std::vector<double>(machine.nodes.size(), unknown));
  for (std::size_t i = 0; i < machine.nodes.size(); ++i)
    for (std::size_t j = 0; j < machine.nodes.size(); ++j) {
      const Node &from = machine.nodes[i], &to = machine.nodes[j];
      const auto a = row.find(from.id), b = row.find(to.id);
      const std::string pair = "node " + std::to_string(from.id) + " to " + std::to_string(to.id);
      const bool needed = !from.cpus.empty() && !to.cpus.empty();
      const json* value = nullptr;
      if (a != row.end() && b != row.end()) {
        const json& line = values[a->second];
        if (!line.is_array() || line.size() != nodes.size())
          throw wrong("row of node " + std::to_string(from.id) + " has not " + std::to_string(nodes.size()) + " values",
                      "a row and a column a node");
        value = &line[b->second];
      }
      if (value == nullptr || value->is_null()) {
        if (needed) throw wrong(pair + ": found no value", "one for each two nodes that have CPUs");
        continue;
      }
      if (!value->is_number() || !std::isfinite(value->get<double>()) || value->get<double>() <= 0)
        throw wrong(pair + ": found " + shown_json(*value), "numbers above 0");
      distance[i][j] = higher ? 1 / value->get<double>() : value->get<double>();
    }
  machine.distance = std::move(distance);
  machine.distance_from =
      (higher ? "1 / " : "") + given["what"].get<std::string>() + " (" + given["unit"].get<std::string>() + ")";
}

}  // namespace mm
