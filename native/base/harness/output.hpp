#pragma once
#include <string_view>

#include "base/json.hpp"

namespace mm {
/// Writes the whole text, even if signals interrupt it. Returns false and sets errno on failure.
bool write_all(int file, std::string_view text);

/// Writes one line of JSON to standard output in one call, so that killing the process does not leave half a line,
/// which the next line would continue. Throws Failure if writing fails (disk full, pipe closed).
void emit(const json& line);

/// Makes `emit` write nothing: only one process of a job prints.
void mute(bool silent = true);
bool muted();

/// Reserves standard output for `emit`; output of libraries goes to standard error.
void keep_output();
}  // namespace mm
