#pragma once
/// What the verbs share: reading their words and the environment, and words for people.
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "json.hpp"

namespace mm::place {

/// The number of a process; UsageError where it is none.
pid_t read_pid(const std::string& text);

std::string variable(const char* name);  ///< of the environment; "" where it is not set
std::vector<std::pair<std::string, std::string>> environment();

std::string why();                ///< errno in words
std::string brief(double value);  ///< four digits
/// Rows of a table with columns as wide as need be, a line each, without blanks at their ends.
std::string aligned(const std::vector<std::vector<std::string>>& rows);
json by_node(const std::map<int, std::uint64_t>& bytes);  ///< {"0": B, …}

}  // namespace mm::place
