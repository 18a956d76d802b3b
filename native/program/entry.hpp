#pragma once
/// Start and end of every program.
#include <exception>
#include <functional>
#include <string>

namespace mm {

/// Runs `work` and returns its exit status. Opens descriptors 0 to 2 (otherwise a data file could become one of them
/// and receive messages), reports output that could not be written, and catches exceptions of all threads (one line on
/// standard error and status 1). `name` begins these lines: "meshmark-probe". If standard output is closed, it reports
/// an error before any work.
int enter(const std::string& name, const std::function<int()>& work);

/// Exit status and message of an exception, as the user sees them.
struct Ending {
  int status;           ///< 2: the request is invalid; 77: unavailable here; 1: failed
  const char* kind;     ///< "error" or "absent"
  std::string message;  ///< one line
  std::string hint;     ///< a remedy; "" if none is known
};
Ending ending_of(const std::exception& wrong);
/// Prints "NAME: KIND: MESSAGE" and the hint on standard error. Returns the status.
int print_ending(const std::string& name, const Ending& ending);
/// For programs whose readers parse JSON Lines: writes the exception as an `error` line on standard output, and
/// "NAME: error: MESSAGE" on standard error. Absent counts as a failure. Returns the status.
int report_error(const std::string& name, const std::exception& wrong);

}  // namespace mm
