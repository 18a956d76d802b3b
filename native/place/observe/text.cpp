#include "place/observe/text.hpp"

#include <algorithm>
#include <cstdio>

#include "base/options/options.hpp"

namespace mm::place::observe {

bool within(const std::vector<int>& some, const std::vector<int>& all) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

std::vector<int> without(const std::vector<int>& all, const std::set<int>& some) {
  std::vector<int> remaining;
  for (const int n : all)
    if (!some.contains(n)) remaining.push_back(n);
  return remaining;
}

std::vector<int> listed(const std::set<int>& set) { return {set.begin(), set.end()}; }

std::string cpus_text(const std::vector<int>& cpus) {
  return (cpus.size() == 1 ? "CPU " : "CPUs ") + (cpus.empty() ? "none" : cpu_list(cpus));
}

std::string nodes_text(const std::vector<int>& nodes) {
  return (nodes.size() == 1 ? "node " : "nodes ") + cpu_list(nodes);
}

std::string mib(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

std::uint64_t sum(const std::map<int, std::uint64_t>& bytes) {
  std::uint64_t all = 0;
  for (const auto& [node, n] : bytes) all += n;
  return all;
}

}  // namespace mm::place::observe
