#pragma once
/// Decides which variables hold secrets, so that no record contains their values.
#include <string>
#include <string_view>
#include <vector>

namespace mm {

/// Returns true if a variable or an option of this name usually holds a secret, such as HF_TOKEN, DB_PASSWORD or
/// api-key. Ignores case.
bool is_secret(std::string_view name);

/// Returns the words of a command line as records contain them: `…` replaces the rest of a word after the first `NAME=`
/// of a secret, and the word after an option such as --api-key.
std::vector<std::string> without_secrets(const std::vector<std::string>& words);

}  // namespace mm
