#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/input_file.hpp"
#include "base/json.hpp"
#include "base/topology/topology.hpp"

namespace mm {

void use_matrix(Machine& machine, const std::string& file) {
  const auto error = [&](const std::string& what, const std::string& allowed) -> UsageError {
    return {"matrix", shown_path(file) + ": " + what, allowed};
  };
  const json matrix = parse_json(read_input_of("matrix", file));
  if (!matrix.is_object())
    throw error("found no JSON object", R"({"nodes": […], "unit": …, "what": …, "values": [[…]]})");
  for (const char* key : {"nodes", "unit", "what", "values"})
    if (!matrix.contains(key)) throw error(std::string("found no '") + key + "'", "nodes, unit, what, values, better");
  for (const char* key : {"unit", "what"})
    if (!matrix[key].is_string()) throw error(std::string(key) + ": found " + shown_json(matrix[key]), "a text");
  const bool higher = matrix.contains("better") && matrix["better"] == "higher";
  if (matrix.contains("better") && !higher && matrix["better"] != "lower")
    throw error("better: found " + shown_json(matrix["better"]), "lower, higher");
  const json &nodes = matrix["nodes"], &values = matrix["values"];
  if (!nodes.is_array() || !values.is_array() || nodes.size() != values.size())
    throw error("found " + std::to_string(nodes.size()) + " nodes and " + std::to_string(values.size()) + " rows",
                "a row and a column a node");

  std::map<int, std::size_t> row;  // OS index → row of the file
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (!nodes[i].is_number_integer()) throw error("nodes: found " + shown_json(nodes[i]), "OS indices of nodes");
    const int id = nodes[i].get<int>();
    machine.node_at(id);
    if (!row.emplace(id, i).second) throw error("nodes: found " + std::to_string(id) + " twice", "each node once");
  }
  const double unknown = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> distance(machine.nodes.size(), std::vector<double>(machine.nodes.size(), unknown));
  for (std::size_t i = 0; i < machine.nodes.size(); ++i)
    for (std::size_t j = 0; j < machine.nodes.size(); ++j) {
      const Node &from_node = machine.nodes[i], &to_node = machine.nodes[j];
      const auto a = row.find(from_node.id), b = row.find(to_node.id);
      const std::string pair = "node " + std::to_string(from_node.id) + " to " + std::to_string(to_node.id);
      const bool is_required = !from_node.cpus.empty() && !to_node.cpus.empty();
      const json* value = nullptr;
      if (a != row.end() && b != row.end()) {
        const json& line = values[a->second];
        if (!line.is_array() || line.size() != nodes.size())
          throw error(
              "row of node " + std::to_string(from_node.id) + " has not " + std::to_string(nodes.size()) + " values",
              "a row and a column a node");
        value = &line[b->second];
      }
      if (value == nullptr || value->is_null()) {
        if (is_required) throw error(pair + ": found no value", "one for each two nodes that have CPUs");
        continue;
      }
      if (!value->is_number() || !std::isfinite(value->get<double>()) || value->get<double>() <= 0)
        throw error(pair + ": found " + shown_json(*value), "numbers above 0");
      distance[i][j] = higher ? 1 / value->get<double>() : value->get<double>();
    }
  machine.distance = std::move(distance);
  machine.distance_from =
      (higher ? "1 / " : "") + matrix["what"].get<std::string>() + " (" + matrix["unit"].get<std::string>() + ")";
  machine.link_hops.clear();
  if (!matrix.contains("hops")) return;
  const json& hops = matrix["hops"];
  if (!hops.is_array() || hops.size() != nodes.size() || row.size() != machine.nodes.size())
    throw error("hops: found no row for each node of the machine", "a row and a column a node");
  std::vector<std::vector<int>> links(machine.nodes.size(), std::vector<int>(machine.nodes.size()));
  for (std::size_t i = 0; i < machine.nodes.size(); ++i) {
    const json& line = hops[row.at(machine.nodes[i].id)];
    if (!line.is_array() || line.size() != nodes.size())
      throw error("hops: found a row that has not " + std::to_string(nodes.size()) + " values", "one for each node");
    for (std::size_t j = 0; j < machine.nodes.size(); ++j) {
      const json& value = line[row.at(machine.nodes[j].id)];
      if (!value.is_number_integer() || value.get<std::int64_t>() < 0 || value.get<std::int64_t>() > 65535)
        throw error("hops: found " + shown_json(value), "integers from 0 to 65535");
      links[i][j] = value.get<int>();
    }
  }
  machine.link_hops = std::move(links);
}

}  // namespace mm
