#include "place/command.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "base/error.hpp"
#include "base/options/options.hpp"

namespace mm::place {

pid_t read_pid(const std::string& text) {
  const long long pid = parse_integer("PID", text);
  if (pid < 1 || pid > 1 << 22) throw UsageError("PID", "found " + quote(text), "the number of a process");
  return static_cast<pid_t>(pid);
}

UsageError with_dashes_hint(const UsageError& error, const std::string& usage) {
  const std::string message = error.what();
  if (message.find("not expected") == std::string::npos) return error;
  return {error.field, message + "; words that begin with a dash, and commands, must follow --", usage};
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::pair<std::string, std::string>> environment() {
  std::vector<std::pair<std::string, std::string>> all;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string entry = *at;
    const std::size_t equals = entry.find('=');
    if (equals != std::string::npos) all.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return all;
}

std::string errno_text() { return std::strerror(errno); }

std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> width;
  for (const auto& row : rows) {
    width.resize(std::max(width.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += row[i] + std::string(width[i] - row[i].size() + 2, ' ');
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

json by_node(const std::map<int, std::uint64_t>& bytes) {
  json object = json::object();
  for (const auto& [node, n] : bytes) object[std::to_string(node)] = n;
  return object;
}

}  // namespace mm::place
