#include "place/syntax/form.hpp"

#include <cctype>
#include <iterator>
#include <map>
#include <set>

namespace mm::place::syntax {
namespace {

Form emit_parts(const Machine& machine, const Layout& layout, const MemoryPolicy& memory) {
  (void)machine;
  if (memory.policy != "default" || memory.pages != "default")
    throw UsageError("parts", "cannot express memory policies", "any other form");
  return {{lists(layout, ";")}, {}, {}};
}

Parsed parse_parts(const Reader& read, CommandLine& line) {
  // The line that `translate` writes has the command after the parts.
  Words words = shell_words(line.text());
  const std::string text = words.empty() ? "" : words.front();
  Layout layout;
  for (const std::string& word : split(text, ';')) add(layout, cpus_of(read, word));
  if (!words.empty()) words.erase(words.begin());
  line.set_command(words);
  return {layout, {}};
}

}  // namespace

std::vector<Syntax> parts() {
  return {
      {"parts", "Meshmark's own", "'0,4;1,5'", kAbsolute, false, false, emit_parts, {}, parse_parts},
  };
}

}  // namespace mm::place::syntax
