#pragma once
#include <string>

#include "place/run/supervise.hpp"

namespace mm::place::job {

/// Returns the lines of one run in the record protocol: a header, results (or an error if the command failed), a note
/// with the placement, an end.
std::string record_lines(const Options& o, const CommandPlacement& job, const CommandOutcome& outcome);

/// Appends the lines to a file, which may end in an incomplete line. Throws Failure if it cannot be written.
void append_record(int file, const std::string& path, std::string lines);

}  // namespace mm::place::job
