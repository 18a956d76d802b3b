#include "program/entry.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "base/error.hpp"
#include "base/harness/output.hpp"
#include "base/json.hpp"
#include "base/text.hpp"

namespace mm {
namespace {

std::string error_prefix = "meshmark";

int print_error(const std::string& text) {
  std::fprintf(stderr, "%s: error: %s\n", error_prefix.c_str(), shown_message(text).c_str());
  return 1;
}

bool closed(int descriptor) { return fcntl(descriptor, F_GETFD) < 0 && errno == EBADF; }

/// Opens /dev/null for closed descriptors. Returns false if standard output was closed: the caller must not treat that
/// as success.
bool open_standard() {
  const bool has_output = !closed(STDOUT_FILENO);
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (!closed(descriptor)) continue;
    // open() returns the lowest free descriptor, which is this one.
    if (open("/dev/null", descriptor == STDIN_FILENO ? O_RDONLY : O_WRONLY) != descriptor) return false;
  }
  return has_output;
}

/// Flushes standard output and returns whether all output has been written.
bool flushed() {
  errno = 0;
  std::cout.flush();
  return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
}

/// Handles an exception that escaped on any thread.
[[noreturn]] void on_terminate() {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
    print_error("internal error: a thread was not joined, or an exception escaped while another was handled" +
                address_limit());
  } catch (const std::exception& error) {
    print_error(message_of(error));
  } catch (...) {
    print_error("internal error: an exception of unknown type");
  }
  _exit(1);
}

}  // namespace

Ending ending_of(const std::exception& wrong) {
  if (const auto* const usage = dynamic_cast<const UsageError*>(&wrong); usage != nullptr)
    return {2, "error",
            (usage->field.empty() ? "" : usage->field + ": ") + usage->what() +
                (usage->allowed.empty() ? "" : "; allowed: " + usage->allowed),
            ""};
  if (const auto* const absent = dynamic_cast<const Absent*>(&wrong); absent != nullptr)
    return {77, "absent", absent->what(), absent->enable};
  const auto* const failure = dynamic_cast<const Failure*>(&wrong);
  return {1, "error", message_of(wrong), failure != nullptr ? failure->hint : ""};
}

int print_ending(const std::string& name, const Ending& ending) {
  std::fprintf(stderr, "%s: %s: %s\n", name.c_str(), ending.kind, ending.message.c_str());
  if (!ending.hint.empty()) std::fprintf(stderr, "hint: %s\n", ending.hint.c_str());
  return ending.status;
}

int report_error(const std::string& name, const std::exception& wrong) {
  const auto* const usage = dynamic_cast<const UsageError*>(&wrong);
  json line{{"type", "error"}, {"field", nullptr}, {"message", message_of(wrong)}, {"allowed", nullptr}};
  std::string text = message_of(wrong);
  if (usage != nullptr) {
    line["field"] = usage->field;
    if (!usage->allowed.empty()) line["allowed"] = usage->allowed;
    text = ending_of(wrong).message;
  }
  try {
    emit(line);
  } catch (const Failure&) {
    // Standard output is closed; report on standard error only.
  }
  if (!muted()) std::fprintf(stderr, "%s: error: %s\n", name.c_str(), text.c_str());
  return usage != nullptr ? 2 : 1;
}

int enter(const std::string& name, const std::function<int()>& work) {
  error_prefix = name;
  if (!open_standard()) return print_error("standard output is closed");
  std::set_terminate(on_terminate);
  int status = 1;
  try {
    status = work();
  } catch (const std::exception& error) {
    status = print_error(message_of(error));
  }
  if (!flushed() && status == 0)
    status = print_error(std::string("cannot write to standard output: ") +
                         (errno != 0 ? std::strerror(errno) : "an earlier write failed"));
  return status;
}

}  // namespace mm
