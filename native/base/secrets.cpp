#include "base/secrets.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace mm {
namespace {

// Parts that a name may contain anywhere, and words that may end it after an underscore.
constexpr std::array<std::string_view, 11> kAnywhere = {"secret",      "passw",      "passphrase", "credential",
                                                        "apikey",      "api_key",    "access_key", "accesskey",
                                                        "private_key", "privatekey", "bearer"};
constexpr std::array<std::string_view, 12> kLast = {"token", "key", "pass",   "pwd", "pat", "pin",
                                                    "auth",  "jwt", "cookie", "sas", "dsn", "webhook"};
constexpr std::array<std::string_view, 3> kWhole = {"jwt", "pgpass", "sshpass"};
constexpr std::array<std::string_view, 3> kPlaces = {"_file", "_path", "_dir"};  // names of files that contain a secret

bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; }

template <typename Words>
bool contains(const Words& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Returns whether a word is an option such as --api-key, whose value is the next word.
bool names_secret(const std::string& word) {
  const std::size_t begin = word.find_first_not_of('-');
  if (begin == 0 || begin == std::string::npos) return false;
  return std::all_of(word.begin(), word.end(), in_name) && is_secret(std::string_view(word).substr(begin));
}

/// Returns whether a word can be a secret: it is neither an option nor a number, as in `--sort-key 2`.
bool can_be_secret(const std::string& word) {
  return !word.starts_with('-') && word.find_first_not_of("0123456789.") != std::string::npos;
}

}  // namespace

bool is_secret(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  std::replace(lower.begin(), lower.end(), '-', '_');  // options such as --api-key
  while (lower.ends_with('_')) lower.pop_back();
  while (lower.starts_with('_')) lower.erase(0, 1);
  for (const std::string_view place : kPlaces)
    if (lower.ends_with(place)) return false;
  for (const std::string_view part : kAnywhere)
    if (lower.find(part) != std::string::npos) return true;
  if (contains(kWhole, lower) || lower.ends_with("token")) return true;
  if (lower.find("_token_") != std::string::npos || lower.starts_with("token_")) return true;
  const std::size_t last = lower.rfind('_');
  return last != std::string::npos && contains(kLast, std::string_view(lower).substr(last + 1));
}

std::vector<std::string> without_secrets(const std::vector<std::string>& words) {
  std::vector<std::string> masked_words = words;
  for (std::string& word : masked_words)
    for (std::size_t at = word.find('='); at != std::string::npos; at = word.find('=', at + 1)) {
      std::size_t begin = at;
      while (begin > 0 && in_name(word[begin - 1])) --begin;
      if (at + 1 == word.size() || !is_secret(std::string_view(word).substr(begin, at - begin))) continue;
      word = word.substr(0, at + 1) + "…";
      break;
    }
  for (std::size_t i = 1; i < words.size(); ++i)
    if (names_secret(words[i - 1]) && can_be_secret(words[i])) masked_words[i] = "…";
  return masked_words;
}

}  // namespace mm
