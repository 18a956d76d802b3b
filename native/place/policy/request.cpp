#include <algorithm>
#include <limits>
#include <set>

#include "base/error.hpp"
#include "base/input_file.hpp"
#include "base/json.hpp"
#include "base/options/options.hpp"
#include "place/policy/policy.hpp"

namespace mm::place {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

const std::vector<std::pair<std::string, std::string>>& policies() {
  static const std::vector<std::pair<std::string, std::string>> all = {
      {"balance", "each slot on the socket with the fewest occupied slots (LSF BALANCE, Y)"},
      {"pack", "all in one socket if possible, never oversubscribed (LSF PACK)"},
      {"any", "the first free slots (LSF ANY)"},
      {"none", "no binding (LSF NONE, N)"},
      {"user", "the policy in the environment: LSB_USER_BIND_JOB and others"},
      {"list", "these CPUs: list=0-3,8, list=0-30:2 (every second), list=4-12,^8"},
      {"compact", "minimum mean distance between the slots"},
      {"scatter", "most memory nodes, farthest apart"},
      {"sharing", "co-locate communicating ranks, spread bandwidth-bound ones (--sharing FILE)"},
  };
  return all;
}

const std::vector<std::pair<std::string, std::string>>& modifiers() {
  static const std::vector<std::pair<std::string, std::string>> all = {
      {"near=DEVICE", "near a network card, disk or accelerator; or near=node:N"},
      {"distance<=HOPS", "maximum hops from one home node to the nodes of the job"},
      {"exclude", "exclusive CPUs"},
      {"kind=KIND", "only cores of this kind: performance, efficiency or another name of meshmark machine show"},
  };
  return all;
}

void parse_bind(const std::string& text, Request& request) {
  const auto error = [&](const std::string& part) -> UsageError {
    std::string names;
    for (const auto& [policy, help] : policies()) names += policy + (policy == "list" ? "=CPUS" : "") + ", ";
    return {"bind", "found " + quote(part) + " in " + quote(text),
            names + "with near=DEVICE, near=node:N, distance<=HOPS, kind=KIND, exclude"};
  };
  const auto is_list = [](const std::string& part) {
    return !part.empty() && part.find_first_not_of("0123456789-:/^ ") == std::string::npos;
  };
  const std::vector<std::string> parts = split(text, ',');
  std::string first = lower(parts.front());
  std::string list;  // the list of CPUs, up to the first modifier
  if (first.rfind("list=", 0) == 0 || is_list(first)) {
    request.policy = "list";
    list = is_list(first) ? first : first.substr(5);
  } else if (first == "pack(socket=1)") {
    request.policy = "pack";
    request.one_package = true;
  } else {
    if (first == "y") first = "balance";
    if (first == "n") first = "none";
    if (first == "user")
      throw UsageError("bind", "'user' requires a policy in the environment, which has none",
                       "LSB_USER_BIND_JOB or MESHMARK_BIND in the environment");
    const auto& all = policies();
    if (std::none_of(all.begin(), all.end(), [&](const auto& p) { return p.first == first; }))
      throw error(parts.front());
    request.policy = first;
  }
  bool modified = false;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::string& part = parts[i];
    if (request.policy == "list" && !modified && is_list(part)) {
      list += "," + part;
      continue;
    }
    modified = true;
    if (part == "exclude") {
      request.exclude = true;
    } else if (part.rfind("near=", 0) == 0 && part.size() > 5) {
      request.near = part.substr(5);
    } else if (part.rfind("kind=", 0) == 0 && part.size() > 5) {
      request.core_kind = lower(part.substr(5));
    } else if (part.rfind("distance<=", 0) == 0) {
      const long long hops = parse_integer("bind: distance<=", part.substr(10));
      if (hops < 0 || hops > 1024) throw UsageError("bind", "found " + quote(part), "0 to 1024 hops");
      request.max_hops = static_cast<int>(hops);
    } else {
      throw error(part);
    }
  }
  if (request.policy != "list") return;
  request.list = parse_cpu_sequence("bind", list);
  std::set<int> distinct;
  for (const int cpu : request.list)
    if (!distinct.insert(cpu).second)
      throw UsageError("bind", "found CPU " + std::to_string(cpu) + " twice in " + quote(text), "each CPU once");
}

SlotKind parse_slot_kind(const std::string& field, const std::string& text) {
  const std::string part = lower(text);
  for (const SlotKind kind : {SlotKind::procs, SlotKind::cores, SlotKind::threads})
    if (part == name(kind)) return kind;
  throw UsageError(field, "found " + quote(text), "procs, cores, threads");
}

std::string name(SlotKind kind) {
  return kind == SlotKind::procs ? "procs" : kind == SlotKind::cores ? "cores" : "threads";
}

PartDemands read_sharing(const std::string& file) {
  const auto error = [&](const std::string& what, const std::string& allowed) -> UsageError {
    return {"sharing", shown_path(file) + ": " + what, allowed};
  };
  const FileContent input = read_input(file);
  if (!input.wrong.empty()) throw error(input.wrong, input.allowed);
  const json content = parse_json(input.text);
  const char* const demand = "bandwidth_demand";
  if (!content.is_object() || (!content.contains("traffic") && !content.contains(demand)))
    throw error("found neither 'traffic' nor 'bandwidth_demand'", R"({"traffic": [[…]], "bandwidth_demand": […]})");
  const auto numbers = [&](const json& list, const std::string& where, double max) {
    std::vector<double> values;
    if (!list.is_array()) throw error(where + ": found " + shown_json(list), "a list of numbers");
    for (const json& v : list) {
      if (!v.is_number() || !(v.get<double>() >= 0) || v.get<double>() > max)
        throw error(where + ": found " + shown_json(v), max == 1 ? "0 to 1" : "finite numbers from 0");
      values.push_back(v.get<double>());
    }
    return values;
  };
  PartDemands sharing;
  if (content.contains(demand)) sharing.bandwidth_demand = numbers(content[demand], demand, 1);
  if (content.contains("traffic")) {
    if (!content["traffic"].is_array()) throw error("traffic: found no rows", "a square matrix");
    for (const json& row : content["traffic"])
      sharing.traffic.push_back(numbers(row, "traffic", std::numeric_limits<double>::max()));
    for (const auto& row : sharing.traffic)
      if (row.size() != sharing.traffic.size())
        throw error("traffic: found a row of " + std::to_string(row.size()) + " in " +
                        std::to_string(sharing.traffic.size()) + " rows",
                    "a square matrix");
  }
  if (!sharing.bandwidth_demand.empty() && !sharing.traffic.empty() &&
      sharing.bandwidth_demand.size() != sharing.traffic.size())
    throw error("found " + std::to_string(sharing.bandwidth_demand.size()) + " demands and " +
                    std::to_string(sharing.traffic.size()) + " rows of traffic",
                "equal numbers");
  return sharing;
}

}  // namespace mm::place
