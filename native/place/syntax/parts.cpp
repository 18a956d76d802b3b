#include "form.hpp"

#include <cctype>
#include <iterator>
#include <map>
#include <set>

namespace mm::place::syntax {
namespace {

Form emit_parts(const Machine& machine, const Layout& layout, const Memory& memory) {
  (void)machine;
  if (memory.policy != "default" || memory.pages != "default")
    throw UsageError("parts", "cannot express memory policies", "any other form");
  return {{lists(layout, ";")}, {}, {}};
}

Layout parse_parts(const Reader& read, const std::string& text) {
  Layout layout;
  for (const std::string& word : split(after(text, {}), ';')) add(layout, read.list(word));
  return layout;
}

}  // namespace

std::vector<Syntax> parts() {
  return {
      {"parts", "Meshmark's own", "'0,4;1,5'", kAbsolute, false, false, emit_parts, parse_parts},
  };
}

}  // namespace mm::place::syntax
