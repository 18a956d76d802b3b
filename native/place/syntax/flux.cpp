#include "form.hpp"

#include <cctype>
#include <iterator>
#include <map>
#include <set>

namespace mm::place::syntax {
namespace {

Form emit_flux(const Machine& machine, const Layout& layout, const Memory& memory) {
  return with_numactl("flux",
                      {{"flux", "run", "-n", count(layout), "-o", "cpu-affinity=map:" + lists(layout, ";")}, {}, {}},
                      machine, layout, memory);
}

Layout parse_flux(const Reader& read, const std::string& text) {
  std::string value = after(text, {"cpu-affinity=", "-ocpu-affinity="});
  for (const char* prefix : {"cpu-affinity=", "verbose,", "dry-run,", "map:"})
    if (value.starts_with(prefix)) value = value.substr(std::string(prefix).size());
  Layout layout;
  for (const std::string& word : split(value, ';'))
    add(layout, word.starts_with("0x") ? read.mask(word) : read.list(word));
  return layout;
}

}  // namespace

std::vector<Syntax> flux() {
  return {
      {"flux", "flux run: -o cpu-affinity=map:", "'map:0,4;1,5' or masks 'map:0x11;0x22'", kAbsolute, false, false,
       emit_flux, parse_flux},
  };
}

}  // namespace mm::place::syntax
