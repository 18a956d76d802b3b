#pragma once
/// Functions that the verbs share: they parse arguments and the environment, and format output.
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"

namespace mm::place {

/// Returns the number of a process; throws UsageError if it is invalid.
pid_t read_pid(const std::string& text);

/// Returns the error of a command line without `--`. If the error is about unexpected words, its message says where
/// these words have to be.
UsageError with_dashes_hint(const UsageError& error, const std::string& usage);

std::string variable(const char* name);  ///< value of an environment variable; "" if it is not set
std::vector<std::pair<std::string, std::string>> environment();

std::string errno_text();  ///< the message for errno
/// Formats rows as a table with columns as wide as needed, one line each, without trailing spaces.
std::string aligned(const std::vector<std::vector<std::string>>& rows);
json by_node(const std::map<int, std::uint64_t>& bytes);  ///< bytes by node, as {"0": B, …}

}  // namespace mm::place
