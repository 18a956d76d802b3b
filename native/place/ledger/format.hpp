#pragma once
/// The text of a reservation's file.
#include <string>

#include "base/json.hpp"
#include "place/ledger/ledger.hpp"

namespace mm::place::ledger {

std::string text_of(const json& line, const char* key);  ///< throws Failure if it is longer than kMaxText

/// Parses a reservation: an object with all fields, then lines with later changes. An incomplete last line is ignored.
/// Throws Failure with the error.
Reservation parse_reservation(const std::string& text, std::string& boot);

std::string reservation_line(const Reservation& reservation);

/// Appends a later change as a line. It starts with a newline, which separates it from an incomplete line.
void append(int fd, const json& line, const std::string& path);

}  // namespace mm::place::ledger
