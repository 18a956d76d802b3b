#include "form.hpp"

#include <cctype>
#include <iterator>
#include <map>
#include <set>

namespace mm::place::syntax {
namespace {

Form emit_lsf(const Machine& machine, const Layout& layout, const Memory& memory) {
  return with_numactl(
      "lsf",
      {{"bsub", "-n", std::to_string(layout.parts.size())}, {{"LSB_USER_BIND_CPU_LIST", cpu_list(layout.cpus())}}, {}},
      machine, layout, memory);
}

Layout parse_lsf(const Reader& read, const std::string& text) {
  std::string value = after(text, {"LSB_USER_BIND_CPU_LIST=", "LSB_BIND_CPU_LIST="});
  std::replace(value.begin(), value.end(), ' ', ',');
  return {{ascending(read.list(value))}};
}

}  // namespace

std::vector<Syntax> lsf() {
  return {
      {"lsf", "bsub, if the site sets BIND_JOB=USER_CPU_LIST", "a list such as 1,2,5,7-9", kAbsolute, true, false,
       emit_lsf, parse_lsf},
  };
}

}  // namespace mm::place::syntax
