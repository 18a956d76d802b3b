#pragma once
/// How a program begins and ends, whatever it does.
#include <exception>
#include <functional>
#include <string>

namespace mm {

/// Does `work` and returns its exit status. Descriptors 0 to 2 are open (else a file of data would become one of them,
/// and messages would be written to it), all output has been written (else 1 and one line on standard error), and no
/// exception leaves, on whatever thread (1 and one line). `name` begins those lines: "meshmark-probe". A closed
/// standard output is an error before anything is done.
int enter(const std::string& name, const std::function<int()>& work);

/// What an exception means to the user of a program.
struct Ending {
  int status;           ///< 2: the request is wrong; 77: it cannot be had here; 1: it failed
  const char* kind;     ///< "error" or "absent"
  std::string message;  ///< one line
  std::string hint;     ///< what helps; "" where nothing is known
};
Ending ending_of(const std::exception& wrong);
/// Prints "NAME: KIND: MESSAGE" and the hint on standard error. Returns the status.
int print_ending(const std::string& name, const Ending& ending);

}  // namespace mm
