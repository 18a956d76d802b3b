#pragma once
/// Decides for a mix that really runs: another program submits jobs, starts them and reports their ends.
#include <iosfwd>
#include <vector>

#include "place/mix/simulation.hpp"

namespace mm::place::mix {

/// Reads lines `submit N` and `end N`, where N is the number of a job, until the input ends. Answers each line with one
/// JSON object: `{"start": [{"job": N, "cpus": "0-3"}, …], "refused": [{"job": N, "why": "…"}, …]}`; `cpus` is "" for a
/// job that is not bound, and `oversubscribed` is true if another job holds one of its CPUs. Throws Failure for another
/// line, or for a job that is not in the state that the line requires.
void decide(const Machine& machine, const Settings& settings, const std::vector<MixJob>& jobs, std::istream& in,
            std::ostream& out);

}  // namespace mm::place::mix
