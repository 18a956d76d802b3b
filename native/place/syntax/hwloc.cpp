#include "form.hpp"

#include <cctype>
#include <iterator>
#include <map>
#include <set>

namespace mm::place::syntax {
namespace {

// Ranges as locations of hwloc.
Words locations(const char* object, const std::vector<int>& numbers) {
  Words words;
  for (const std::string& range : split(cpu_list(numbers), ',')) words.push_back(std::string(object) + ":" + range);
  return words;
}

Form emit_hwloc(const Machine& machine, const Layout& layout, const Memory& memory) {
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

// Locations of hwloc(7): masks, and tuples such as pu:0-3 or package:1.core:odd; logical unless --physical is given.
Layout parse_hwloc(const Reader& read, const std::string& text) {
  const Words words = shell_words(text);
  const bool physical =
      std::any_of(words.begin(), words.end(), [](const std::string& w) { return w == "--physical" || w == "-p"; });
  const std::vector<Cpu> all = logical(read.machine);
  const auto key = [](const Cpu& cpu, const std::string& type) {
    return type == "pu"                                             ? cpu.id
           : type == "core"                                         ? cpu.core
           : type == "l3" || type == "l3cache"                      ? (cpu.has_l3 ? cpu.l3 : -1)
           : type == "package" || type == "socket"                  ? cpu.package
           : type == "numanode" || type == "numa" || type == "node" ? cpu.node
           : type == "machine"                                      ? 0
                                                                    : -1;
  };
  const auto tuple = [&](const std::vector<Cpu>& among, const std::string& word) {
    const std::size_t colon = word.find(':');
    if (colon == std::string::npos) read.refuse(word);
    const std::string type = word.substr(0, colon), index = word.substr(colon + 1);
    std::vector<int> objects;  // keys, in hwloc's order
    for (const Cpu& cpu : among) {
      const int k = key(cpu, type);
      if (k < 0) read.refuse(word);
      if (std::find(objects.begin(), objects.end(), k) == objects.end()) objects.push_back(k);
    }
    const bool by_os = physical && (type == "pu" || type.starts_with("n"));
    if (physical && !by_os)
      throw UsageError("hwloc", "found " + quote(word) + " with --physical",
                       "pu or numanode, since other objects have no physical number");
    const std::size_t dash = index.find('-'), wrap = index.find(':');
    const int last = by_os ? *std::max_element(objects.begin(), objects.end()) : static_cast<int>(objects.size()) - 1;
    std::set<int> chosen;
    if (index == "all" || index == "odd" || index == "even") {
      for (int i = 0; i <= last; ++i)
        if (index == "all" || i % 2 == (index == "odd")) chosen.insert(i);
    } else if (wrap != std::string::npos) {
      const int first = read.number(index.substr(0, wrap)), n = read.number(index.substr(wrap + 1));
      if (first > last || n < 1) read.refuse(word);
      for (int i = 0; i < std::min(n, last + 1); ++i) chosen.insert((first + i) % (last + 1));
    } else if (dash != std::string::npos && dash + 1 == index.size()) {
      for (int i = read.number(index.substr(0, dash)); i <= last; ++i) chosen.insert(i);
    } else {
      for (const int i : read.range(index)) {
        if (i > last) read.refuse(word);
        chosen.insert(i);
      }
    }
    std::vector<Cpu> found;
    for (const Cpu& cpu : among) {
      const int k = key(cpu, type);
      const int place = by_os ? k : static_cast<int>(std::find(objects.begin(), objects.end(), k) - objects.begin());
      if (chosen.contains(place)) found.push_back(cpu);
    }
    if (found.empty()) read.refuse(word);
    return found;
  };
  std::vector<int> cpus;
  bool memory = false;
  for (std::size_t i = !words.empty() && words[0].ends_with("hwloc-bind") ? 1 : 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") break;
    if (word == "--cpubind" || word == "--membind") {
      memory = word == "--membind";
    } else if (word == "--mempolicy") {
      ++i;
    } else if (word == "--physical" || word == "-p" || word == "--logical" || word == "-l" || word == "--strict" ||
               memory) {
    } else if (word.starts_with("0x")) {
      for (const int cpu : read.mask(word)) cpus.push_back(cpu);
    } else {
      std::vector<Cpu> found = all;
      if (word != "all" && word != "root")
        for (const std::string& step : split(word, '.')) found = tuple(found, step);
      for (const Cpu& cpu : found) cpus.push_back(cpu.id);
    }
  }
  if (cpus.empty()) read.refuse(text);
  return {{ascending(cpus)}};
}

}  // namespace

std::vector<Syntax> hwloc() {
  return {
      {"hwloc", "hwloc-bind", "'--physical pu:0-3 pu:8', 'package:0.core:1' or '0x11'", kAbsolute, true, false,
       emit_hwloc, parse_hwloc},
  };
}

}  // namespace mm::place::syntax
