#include "form.hpp"

#include <cctype>
#include <iterator>
#include <map>
#include <set>

namespace mm::place::syntax {
namespace {

Form emit_mpich(const Machine& machine, const Layout& layout, const Memory& memory) {
  Words sets;
  for (const auto& part : layout.parts) sets.push_back(plain(part, "+"));
  return with_numactl("mpich", {{"mpiexec", "-n", count(layout), "-bind-to", "user:" + join(sets, ",")}, {}, {}},
                      machine, layout, memory);
}

Layout parse_mpich(const Reader& read, const std::string& text) {
  Layout layout;
  for (std::string word : split(after(text, {"user:"}), ',')) {
    const std::size_t times = read.repeats(word, 'x');
    add(layout, read.list(word, '+'), times);
  }
  return layout;
}

}  // namespace

std::vector<Syntax> mpich() {
  return {
      {"mpich", "mpiexec of MPICH (hydra): -bind-to user:", "'user:0+1,2+3', with 0-3 and 0x4", kAbsolute, false, false,
       emit_mpich, parse_mpich},
  };
}

}  // namespace mm::place::syntax
