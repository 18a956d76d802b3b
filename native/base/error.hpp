#pragma once
/// Exceptions, classified by what the user can do.
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/text.hpp"

namespace mm {

/// The request is invalid. Names the field, the value that was found and the values that are allowed. Exit status 2.
struct UsageError : std::runtime_error {
  UsageError(std::string field_, const std::string& message, std::string allowed_ = {})
      : std::runtime_error(message), field(std::move(field_)), allowed(std::move(allowed_)) {}
  std::string field, allowed;
};

/// The requested quantity is unavailable here. Exit status 77.
struct Absent : std::runtime_error {
  explicit Absent(const std::string& reason, std::string enable_ = {})
      : std::runtime_error(reason), enable(std::move(enable_)) {}
  std::string enable;
};

/// An operation failed. Exit status 1.
struct Failure : std::runtime_error {
  explicit Failure(const std::string& message, std::string hint_ = {})
      : std::runtime_error(message), hint(std::move(hint_)) {}
  std::string hint;
};

/// Returns the message of an exception on one line. If memory or a thread was unavailable, the message names the limit
/// of the address space, if there is one.
std::string message_of(const std::exception& error);

/// Returns "; the address space is limited to 200000 KiB (ulimit -v)", the usual reason for such failures, or "" if
/// there is no limit.
std::string address_limit();

}  // namespace mm
