#include "survey/steps.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/options/options.hpp"

namespace mm::survey {
namespace {

constexpr std::size_t kMaxCpus = 8;
/// A step that does not respect its budget is ended after this multiple of it, and these seconds.
constexpr double kLimitFactor = 2, kLimitMore_s = 20;

/// Returns the first allowed CPU of each node that has allowed CPUs.
std::vector<int> first_cpus_of_nodes(const Machine& machine) {
  std::vector<int> cpus;
  for (const Node& node : machine.nodes) {
    const auto cpu =
        std::ranges::find_if(node.cpus, [&](int id) { return std::ranges::binary_search(machine.allowed, id); });
    if (cpu != node.cpus.end()) cpus.push_back(*cpu);
  }
  return cpus;
}

}  // namespace

std::string relation(const Machine& machine, int a, int b) {
  const Cpu &x = machine.cpu(a), &y = machine.cpu(b);
  if (x.core == y.core) return "same core";
  if (x.package != y.package) return "other package";
  return x.has_l3 && y.has_l3 && x.l3 == y.l3 ? "same L3" : "same package";
}

std::vector<int> sampled_cpus(const Machine& machine) {
  std::vector<int> cpus{machine.allowed.at(0)};
  for (const char* name : {"same core", "same L3", "same package", "other package"}) {
    const auto cpu = std::ranges::find_if(
        machine.allowed, [&](int id) { return id != cpus[0] && relation(machine, cpus[0], id) == name; });
    if (cpu != machine.allowed.end()) cpus.push_back(*cpu);
  }
  for (const int id : first_cpus_of_nodes(machine))
    if (cpus.size() < kMaxCpus && std::ranges::find(cpus, id) == cpus.end()) cpus.push_back(id);
  return cpus;
}

std::vector<node::PlanStep> steps(const Machine& machine, double budget_s) {
  struct Step {
    const char* id;
    std::vector<std::string> argv;
    double weight;
  };
  const int first = machine.allowed.at(0);
  std::vector<Step> all{{"latency", {"latency", "--footprint", "4KiB..1GiB", "--cpus", std::to_string(first)}, 3},
                        {"bandwidth", {"bandwidth", "--kernel", "read,triad", "--threads", "1,all"}, 3}};
  if (!machine.memory_nodes.empty()) {  // otherwise latency measures the memory of each node
    const int node = machine.cpu(first).node;
    const bool has_memory = std::ranges::binary_search(machine.memory_nodes, node);
    all[0].argv.insert(all[0].argv.end(),
                       {"--memory-node", std::to_string(has_memory ? node : machine.memory_nodes.front())});
  }
  if (const std::vector<int> cpus = sampled_cpus(machine); cpus.size() > 1)
    all.push_back({"lines", {"lines", "--state", "swap", "--cpus", cpu_list(cpus)}, 1});
  // Four times the last-level cache, which may be larger than 64 MiB.
  const std::size_t matrix_bytes = std::max(std::size_t{256} << 20, 4 * machine.last_level_bytes());
  if (machine.memory_nodes.size() > 1)
    all.push_back({"nodes",
                   {"latency", "--footprint", std::to_string(matrix_bytes), "--cpus",
                    cpu_list(first_cpus_of_nodes(machine)), "--memory-node", "all"},
                   3});
  double weights = 0;
  for (const Step& step : all) weights += step.weight;
  std::vector<node::PlanStep> result;
  for (Step& step : all) {
    const double step_s = budget_s * step.weight / weights;
    std::array<char, 32> budget;
    std::snprintf(budget.data(), budget.size(), "%.3gs", step_s);
    step.argv.insert(step.argv.end(), {"--interval", "3", "--budget", budget.data()});
    result.push_back({.id = step.id, .argv = step.argv, .limit_s = kLimitFactor * step_s + kLimitMore_s});
  }
  return result;
}

}  // namespace mm::survey
