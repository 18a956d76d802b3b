#pragma once
/// The steps of a survey of a minute.
#include <string>
#include <vector>

#include "base/topology/topology.hpp"
#include "node/plan.hpp"

namespace mm::survey {

/// Returns CPUs with different relations to the first allowed CPU, which comes first: in the same core, behind the same
/// L3, in the same package, in another package; then one CPU of each other node. At most eight.
std::vector<int> sampled_cpus(const Machine& machine);

/// How two CPUs are related: "same core", "same L3", "same package" or "other package".
std::string relation(const Machine& machine, int a, int b);

/// Returns the steps: latency of each cache level and of memory, bandwidth of reads and of triad, transfers between a
/// sample of cores, and the latency between all nodes with memory if there are several. `budget_s` is the sum of the
/// budgets of all steps.
std::vector<node::PlanStep> steps(const Machine& machine, double budget_s);

}  // namespace mm::survey
