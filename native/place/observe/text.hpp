#pragma once
/// Sets of CPUs and nodes, and their format in reports.
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace mm::place::observe {

bool within(const std::vector<int>& some, const std::vector<int>& all);
std::vector<int> without(const std::vector<int>& all, const std::set<int>& some);
std::vector<int> listed(const std::set<int>& set);
std::string cpus_text(const std::vector<int>& cpus);
std::string nodes_text(const std::vector<int>& nodes);
std::string mib(std::uint64_t bytes);
std::uint64_t sum(const std::map<int, std::uint64_t>& bytes);

}  // namespace mm::place::observe
