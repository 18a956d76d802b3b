#pragma once
/// A program of a user as a step: some runs, each in a fresh process and an empty folder.
#include <functional>

#include "base/json.hpp"
#include "node/plan.hpp"

namespace mm::node {

inline constexpr int kNotInstalled = 77, kFailed = 1;

/// Runs `program`, which belongs to `step`, and passes a line for each run to `take`; the lines are interpreted when
/// the results are collected. A failed run is repeated; after `failures` failed runs the step ends. Returns 0,
/// `kFailed` or `kNotInstalled`. Pre: `adopt_orphans` was called. Throws Failure.
int run_program(const PlanStep& step, const UserProgram& program, const std::function<void(const json&)>& take);

}  // namespace mm::node
