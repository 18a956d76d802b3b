#include <algorithm>
#include <limits>
#include <set>

#include "../policy.hpp"
#include "error.hpp"
#include "input_file.hpp"
#include "json.hpp"
#include "options.hpp"

namespace mm::place {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

const std::vector<std::pair<std::string, std::string>>& policies() {
  static const std::vector<std::pair<std::string, std::string>> all = {
      {"balance", "each slot on the socket with the fewest taken (LSF BALANCE, Y)"},
      {"pack", "all in one socket where it fits, never oversubscribed (LSF PACK)"},
      {"any", "the first free slots (LSF ANY)"},
      {"none", "no binding (LSF NONE, N)"},
      {"user", "what the environment says: LSB_USER_BIND_JOB and the like"},
      {"list", "these CPUs: list=0-3,8"},
      {"compact", "least mean distance between the slots"},
      {"scatter", "most memory nodes, farthest apart"},
      {"sharing", "communicating ranks together, bandwidth-bound ones apart (--sharing FILE)"},
  };
  return all;
}

const std::vector<std::pair<std::string, std::string>>& modifiers() {
  static const std::vector<std::pair<std::string, std::string>> all = {
      {"near=DEVICE", "near a network card, disk or accelerator, or near=node:N"},
      {"distance<=HOPS", "no two nodes of the job are farther apart"},
      {"exclude", "nobody else on its CPUs"},
  };
  return all;
}

void parse_bind(const std::string& text, Request& request) {
  const auto wrong = [&](const std::string& word) -> UsageError {
    std::string names;
    for (const auto& [policy, help] : policies()) names += policy + (policy == "list" ? "=CPUS" : "") + ", ";
    return {"bind", "found " + quote(word) + " in " + quote(text),
            names + "with near=DEVICE, near=node:N, distance<=HOPS, exclude"};
  };
  const auto is_list = [](const std::string& word) {
    return !word.empty() && word.find_first_not_of("0123456789-") == std::string::npos;
  };
  std::set<int> seen;
  const auto take = [&](const std::string& word) {
    for (const int cpu : parse_cpu_list("bind", word)) {
      if (!seen.insert(cpu).second)
        throw UsageError("bind", "found CPU " + std::to_string(cpu) + " twice in " + quote(text), "each CPU once");
      request.list.push_back(cpu);
    }
  };
  const std::vector<std::string> words = split(text, ',');
  std::string first = lower(words.front());
  bool listing = false;
  if (first.rfind("list=", 0) == 0 || is_list(first)) {
    request.policy = "list";
    request.list.clear();
    take(is_list(first) ? first : first.substr(5));
    listing = true;
  } else if (first == "pack(socket=1)") {
    request.policy = "pack";
    request.one_package = true;
  } else {
    if (first == "y") first = "balance";
    if (first == "n") first = "none";
    if (first == "user")
      throw UsageError("bind", "'user' stands for what the environment says, which is nothing here",
                       "LSB_USER_BIND_JOB or MESHMARK_BIND in the environment");
    const auto& all = policies();
    if (std::none_of(all.begin(), all.end(), [&](const auto& p) { return p.first == first; }))
      throw wrong(words.front());
    request.policy = first;
  }
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (listing && is_list(word)) {
      take(word);
      continue;
    }
    listing = false;
    if (word == "exclude") {
      request.exclude = true;
    } else if (word.rfind("near=", 0) == 0 && word.size() > 5) {
      request.near = word.substr(5);
    } else if (word.rfind("distance<=", 0) == 0) {
      const long long hops = parse_integer("bind: distance<=", word.substr(10));
      if (hops < 0 || hops > 1024) throw UsageError("bind", "found " + quote(word), "0 to 1024 hops");
      request.max_hops = static_cast<int>(hops);
    } else {
      throw wrong(word);
    }
  }
}

SlotKind parse_slot_kind(const std::string& field, const std::string& text) {
  const std::string word = lower(text);
  for (const SlotKind kind : {SlotKind::procs, SlotKind::cores, SlotKind::threads})
    if (word == name(kind)) return kind;
  throw UsageError(field, "found " + quote(text), "procs, cores, threads");
}

std::string name(SlotKind kind) {
  return kind == SlotKind::procs ? "procs" : kind == SlotKind::cores ? "cores" : "threads";
}

Sharing read_sharing(const std::string& file) {
  const auto wrong = [&](const std::string& what, const std::string& allowed) -> UsageError {
    return {"sharing", shown_path(file) + ": " + what, allowed};
  };
  const Input input = read_input(file);
  if (!input.wrong.empty()) throw wrong(input.wrong, input.allowed);
  const json given = parse_json(input.text);
  if (!given.is_object() || (!given.contains("traffic") && !given.contains("hunger")))
    throw wrong("found neither 'traffic' nor 'hunger'", R"({"traffic": [[…]], "hunger": […]})");
  const auto numbers = [&](const json& list, const std::string& where, double most) {
    std::vector<double> values;
    if (!list.is_array()) throw wrong(where + ": found " + shown_json(list), "a list of numbers");
    for (const json& v : list) {
      if (!v.is_number() || !(v.get<double>() >= 0) || v.get<double>() > most)
        throw wrong(where + ": found " + shown_json(v), most == 1 ? "0 to 1" : "finite numbers from 0");
      values.push_back(v.get<double>());
    }
    return values;
  };
  Sharing sharing;
  if (given.contains("hunger")) sharing.bandwidth_demand = numbers(given["hunger"], "hunger", 1);
  if (given.contains("traffic")) {
    if (!given["traffic"].is_array()) throw wrong("traffic: found no rows", "a square matrix");
    for (const json& row : given["traffic"])
      sharing.traffic.push_back(numbers(row, "traffic", std::numeric_limits<double>::max()));
    for (const auto& row : sharing.traffic)
      if (row.size() != sharing.traffic.size())
        throw wrong("traffic: found a row of " + std::to_string(row.size()) + " in " +
                        std::to_string(sharing.traffic.size()) + " rows",
                    "a square matrix");
  }
  if (!sharing.bandwidth_demand.empty() && !sharing.traffic.empty() &&
      sharing.bandwidth_demand.size() != sharing.traffic.size())
    throw wrong("found " + std::to_string(sharing.bandwidth_demand.size()) + " demands and " +
                    std::to_string(sharing.traffic.size()) + " rows of traffic",
                "as many of both");
  return sharing;
}

}  // namespace mm::place
