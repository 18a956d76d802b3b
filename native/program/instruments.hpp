#pragma once
/// The command line of programs with instruments: meshmark-probe, and the ranks of meshmark-comm.
#include <functional>
#include <string>

namespace mm {

class Run;

struct Front {
  std::string name, summary;  ///< summary: ends with an example
  /// Called after the command line has been checked and before measuring; may throw the exceptions of an instrument.
  std::function<void(const Run& run)> begin{};
  /// Called with the exit status after the last line, if `begin` was called. Returns the final exit status.
  std::function<int(int status)> end{};
  /// Called instead of the usual error report and `end` if one process of many fails, while the others wait for it.
  std::function<void(const std::string& why)> fail{};
};

/// Lists, describes, checks or measures as the arguments request. Returns the exit status.
int answer(int argc, char** argv, const Front& front);

}  // namespace mm
