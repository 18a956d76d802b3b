#pragma once
/// What goes wrong, by what its user can do.
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

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
  explicit Failure(const std::string& message, std::string hint_ = {})
      : std::runtime_error(message), hint(std::move(hint_)) {}
  std::string hint;
};

/// An exception in one line for people. Where memory or a thread could not be had it names the limit that is set.
std::string message_of(const std::exception& wrong);

/// "" or "; the address space is limited to 200000 KiB (ulimit -v)": the reason for most of what cannot be had then.
std::string address_limit();

}  // namespace mm
