#pragma once
/// Shared by the verbs: parsing of arguments and of the environment, and formatting of output.
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "error.hpp"
#include "json.hpp"

namespace mm::place {

/// The number of a process; throws UsageError if it is invalid.
pid_t read_pid(const std::string& text);

/// The error of a command line without `--`: if it found words that it did not expect, names where they have to stand.
UsageError with_dashes(const UsageError& error, const std::string& usage);

std::string variable(const char* name);  ///< from the environment; "" if it is not set
std::vector<std::pair<std::string, std::string>> environment();

std::string errno_text();         ///< the message of errno
std::string brief(double value);  ///< four significant digits
/// Formats rows as a table with columns as wide as needed, one line each, without trailing spaces.
std::string aligned(const std::vector<std::vector<std::string>>& rows);
json by_node(const std::map<int, std::uint64_t>& bytes);  ///< {"0": B, …}

}  // namespace mm::place
