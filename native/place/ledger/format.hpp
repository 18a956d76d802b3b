#pragma once
/// The text of a reservation's file.
#include <string>

#include "../ledger.hpp"
#include "json.hpp"

namespace mm::place::ledger {

std::string text_of(const json& line, const char* key);  ///< Failure: longer than kMaxText

/// A reservation as it was journalled: an object with all of it, then lines with what came later. A torn line at the
/// end was never reserved. Failure says what is wrong.
Reservation parse_reservation(const std::string& text, std::string& boot);

std::string reservation_line(const Reservation& reservation);

/// Something that came after the first line. It starts with a line's end: what was torn before it stays alone.
void append(int fd, const json& line, const std::string& path);

}  // namespace mm::place::ledger
