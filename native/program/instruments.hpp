#pragma once
/// The command line of a program of instruments: meshmark-probe's, and that of the ranks of meshmark-comm.
#include <functional>
#include <string>

namespace mm {

struct Front {
  std::string name, summary;  ///< summary: with an example
  /// After the command line was read and before anything is measured; may throw as an instrument may.
  std::function<void()> begin{};
  /// With the exit status, after the last line; it is not called where `begin` was not. Returns the status to exit
  /// with.
  std::function<int(int status)> end{};
  /// Instead of the usual words and `end` where a process of many fails alone: the others wait for it.
  std::function<void(const std::string& why)> fail{};
};

/// Lists, describes, checks or measures as the words say; returns the exit status.
int answer(int argc, char** argv, const Front& front);

}  // namespace mm
