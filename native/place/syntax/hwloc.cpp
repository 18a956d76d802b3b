#include "base/topology/locations.hpp"
#include "place/syntax/form.hpp"

#include <cctype>
#include <iterator>
#include <map>
#include <set>

namespace mm::place::syntax {
namespace {

// Returns ranges as locations of hwloc.
Words locations(const char* object, const std::vector<int>& numbers) {
  Words words;
  for (const std::string& range : split(cpu_list(numbers), ',')) words.push_back(std::string(object) + ":" + range);
  return words;
}

Form emit_hwloc(const Machine& machine, const Layout& layout, const MemoryPolicy& memory) {
  Words words{"hwloc-bind", "--physical"};
  // Without --strict, hwloc requests "preferred" from the Linux kernel instead of a binding.
  if (memory.policy == "bind") words.emplace_back("--strict");
  words.emplace_back("--cpubind");
  for (const std::string& word : locations("pu", layout.parts[0])) words.push_back(word);
  if (memory.policy == "weighted") no_weights("hwloc");
  if (memory.policy != "default") {
    words.emplace_back("--membind");
    for (const std::string& word : locations("node", requested_nodes(machine, memory, layout.cpus())))
      words.push_back(word);
    words.emplace_back("--mempolicy");
    words.emplace_back(memory.policy == "local" ? "firsttouch" : memory.policy == "interleave" ? "interleave" : "bind");
  }
  words.emplace_back("--");
  return {words, {}, {}};
}

// What hwloc-bind's options request, besides locations.
struct BindOptions {
  bool strict = false, memory = false, masks_of_nodes = false, single = false;
  int thread_of_core = -1;  // --no-smt: only this thread of each core
  std::string policy = "bind";
  Indexes indexes = Indexes::logical;
};

// Takes one option; returns its number of words, or 0 if the word is not an option.
std::size_t take_option(const Reader& read, const Words& words, std::size_t at, BindOptions& options, Words& left_out) {
  const std::string& word = words[at];
  const std::string value = at + 1 < words.size() ? words[at + 1] : "";
  if (word == "--physical" || word == "-p" || word == "--pi" || word == "--physical-input") {
    options.indexes = Indexes::physical;
  } else if (word == "--logical" || word == "-l" || word == "--li" || word == "--logical-input") {
    options.indexes = Indexes::logical;
  } else if (word == "--cpubind" || word == "--membind") {
    options.memory = word == "--membind";
  } else if (word == "--strict") {
    options.strict = true;
  } else if (word == "--single") {
    options.single = true;
  } else if (word == "--nodeset") {
    options.masks_of_nodes = true;
  } else if (word == "--no-smt") {
    options.thread_of_core = 0;
  } else if (word.starts_with("--no-smt=")) {
    options.thread_of_core = read.number(word.substr(9), word);
  } else if (word == "--mempolicy") {
    options.policy = value;
    return 2;
  } else if (word == "--pid" || word == "--tid") {
    left_out.push_back(word + " " + value);
    return 2;
  } else if (word == "--force" || word == "-f") {
    left_out.push_back(word);
  } else if (word == "--quiet" || word == "-q" || word == "--verbose" || word == "-v" || word == "--taskset") {
  } else if (word.starts_with("-")) {
    throw UsageError(
        "hwloc", "found the option " + quote(word),
        "--cpubind, --membind, --mempolicy, --strict, --physical, --logical, --nodeset, --single, --no-smt");
  } else {
    return 0;
  }
  return 1;
}

MemoryPolicy memory_of(const BindOptions& options, const std::vector<int>& nodes) {
  if (nodes.empty()) return {};
  // hwloc compares two letters. Without --strict, it requests that the Linux kernel prefer the nodes.
  const std::string policy = options.policy.substr(0, 2);
  if (policy == "de") return {};
  if (policy == "fi") return {"local", {}, {}, "default"};
  if (policy == "in") return {"interleave", nodes, {}, "default"};
  if (policy == "bi") return {options.strict ? "bind" : "preferred", nodes, {}, "default"};
  throw UsageError("hwloc", "found the memory policy " + quote(options.policy),
                   "bind, interleave, firsttouch, default");
}

// hwloc-bind: options and locations, whose order matters.
Parsed parse_hwloc(const Reader& read, CommandLine& line) {
  const Words& words = line.command();
  Locations locations(read.machine);
  BindOptions request;
  Located cpus, nodes;
  Parsed parsed;
  bool has_cpus = false, has_nodes = false;
  std::size_t i = 0;
  while (i < words.size() && words[i] != "--") {
    if (const std::size_t word_count = take_option(read, words, i, request, parsed.left_out); word_count > 0) {
      i += word_count;
      continue;
    }
    // A word that is not a location begins the command, unless there is no program that would start one.
    if (line.program() == "hwloc-bind" && !Locations::is_location(words[i])) break;
    const bool is_nodeset = words[i].starts_with("nodeset=");
    locations.combine(request.memory ? nodes : cpus, is_nodeset ? words[i].substr(8) : words[i], request.indexes,
                      is_nodeset || request.masks_of_nodes);
    (request.memory ? has_nodes : has_cpus) = true;
    ++i;
  }
  if (!has_cpus && !has_nodes) read.refuse(line.text());
  std::vector<int> part = has_cpus ? cpus.cpus : numbered_cpus(read.machine);
  if (request.thread_of_core >= 0) {
    std::map<int, int> threads;  // number of threads of each core so far
    std::erase_if(part, [&](int cpu) { return threads[read.machine.cpu(cpu).core]++ != request.thread_of_core; });
  }
  if (request.single && !part.empty()) part.resize(1);
  if (part.empty()) throw UsageError("hwloc", "found " + quote(line.text()) + ", which selects no CPU", read.example);
  if (has_nodes && nodes.nodes.empty())
    throw UsageError("hwloc", "found --membind with locations that have no memory node", "locations with memory");
  if (i < words.size() && words[i] == "--") ++i;
  line.set_command({words.begin() + static_cast<std::ptrdiff_t>(std::min(i, words.size())), words.end()});
  parsed.layout.parts = {part};
  parsed.memory = memory_of(request, nodes.nodes);
  return parsed;
}

}  // namespace

std::vector<Syntax> hwloc() {
  return {
      {"hwloc",
       "hwloc-bind",
       "'--physical pu:0-3 pu:8', 'package:0.core:1' or '0x11'",
       kAbsolute,
       true,
       false,
       emit_hwloc,
       {{"hwloc-bind", "hwloc-calc"}, {}, false, {}, true},
       parse_hwloc},
  };
}

}  // namespace mm::place::syntax
