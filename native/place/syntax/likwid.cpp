#include "form.hpp"

#include <cctype>
#include <iterator>
#include <map>
#include <set>

namespace mm::place::syntax {
namespace {

// likwid uses absolute numbers unless its CPUs are restricted; then they are indices into the allowed CPUs, with the
// first threads of all cores first (likwid 5.2, cpustring.c).
std::vector<int> likwid_order(const Machine& machine) {
  std::vector<Cpu> cpus = in_order(machine, machine.allowed);
  std::stable_sort(cpus.begin(), cpus.end(), [](const Cpu& a, const Cpu& b) { return a.smt < b.smt; });
  std::vector<int> order;
  for (const Cpu& cpu : cpus) order.push_back(cpu.id);
  return order;
}
bool restricted(const Machine& machine) { return machine.allowed.size() < machine.cpus.size(); }

Form emit_likwid(const Machine& machine, const Layout& layout, const Memory& memory) {
  const std::vector<int> order = likwid_order(machine);
  std::vector<int> numbers;
  for (const auto& part : layout.parts) {
    const auto at = std::find(order.begin(), order.end(), part[0]);
    if (at == order.end())
      throw UsageError("likwid", "numbers only allowed CPUs, and CPU " + std::to_string(part[0]) + " is not allowed",
                       "CPUs " + cpu_list(machine.allowed));
    numbers.push_back(restricted(machine) ? static_cast<int>(at - order.begin()) : part[0]);
  }
  return with_numactl("likwid", {{"likwid-pin", "-c", plain(numbers, ",")}, {}, {}}, machine, layout, memory);
}

Layout parse_likwid(const Reader& read, const std::string& text) {
  const std::string value = after(text, {"-c", "-C"});
  if (!restricted(read.machine)) return singles(read.list(value));
  const std::vector<int> order = likwid_order(read.machine);
  Layout layout;
  for (const std::string& word : split(value, ','))
    for (const int n : read.range(word)) {
      if (static_cast<std::size_t>(n) >= order.size())
        throw UsageError("likwid", "found number " + std::to_string(n) + " in " + quote(word),
                         "0-" + std::to_string(order.size() - 1) + ", which number the allowed CPUs");
      add(layout, {order[static_cast<std::size_t>(n)]});
    }
  return layout;
}

}  // namespace

std::vector<Syntax> likwid() {
  return {
      {"likwid", "likwid-pin", "'-c 0,4,9-11'", "absolute; if not all CPUs are allowed, relative to the allowed ones",
       false, true, emit_likwid, parse_likwid},
  };
}

}  // namespace mm::place::syntax
