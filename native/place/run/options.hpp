#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace mm::place::job {

inline constexpr double kForever = std::numeric_limits<double>::infinity();

struct Options {
  std::optional<std::string> bind, slots, memory, pages;
  std::string within, matrix, sharing, profile, record, launcher;
  int n = 0;  // 0: not given
  double wait_s = 0, timeout_s = 0;
  std::uint64_t needed_bytes = 0;  // 0: not given
  bool each = false, openmp = false, hard = false, no_claim = false, verbose = false, verify = false, strict = false;
  std::vector<std::string> command;
  std::vector<std::string> recorded;  // the command as records and reservations contain it, without secrets
};

/// Returns whether a daemon starts the ranks of this launcher, so that they do not inherit the launcher's binding.
bool form_uses_daemon(const std::string& launcher);

/// Parses the command line. Returns nullopt if the help was printed.
std::optional<Options> read_options(int argc, char** argv);

}  // namespace mm::place::job
