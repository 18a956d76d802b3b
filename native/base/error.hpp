#pragma once
#include <stdexcept>
#include <string>

#include "text.hpp"

namespace mm {

/// The request is wrong: names the field, what was found and what is allowed. Exit status 2.
struct UsageError : std::runtime_error {
  UsageError(std::string field_, const std::string& message, std::string allowed_ = {})
      : std::runtime_error(message), field(std::move(field_)), allowed(std::move(allowed_)) {}
  std::string field, allowed;
};

/// The one thing asked for cannot be had here. Exit status 77.
struct Absent : std::runtime_error {
  explicit Absent(const std::string& reason, std::string enable_ = {})
      : std::runtime_error(reason), enable(std::move(enable_)) {}
  std::string enable;
};

/// Something that should have worked did not. Exit status 1.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace mm
