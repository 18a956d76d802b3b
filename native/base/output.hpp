#pragma once
#include <string_view>

#include "json.hpp"

namespace mm {
/// All of a text, whatever signals come; false with errno where not all of it could be written.
bool write_all(int file, std::string_view text);

/// Writes one line of JSON to standard output at once, so that a kill never tears two lines.
/// Failure when nobody can take it (disk full, pipe closed).
void emit(const json& line);

/// From now on `emit` writes nothing: of the processes of a job, one speaks.
void mute(bool silent = true);
bool muted();

/// From now on standard output is `emit`'s alone: what libraries print there goes to standard error.
void keep_output();
}  // namespace mm
