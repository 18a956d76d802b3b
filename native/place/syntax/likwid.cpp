#include "place/syntax/form.hpp"

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

Form emit_likwid(const Machine& machine, const Layout& layout, const MemoryPolicy& memory) {
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

Parsed parse_likwid(const Reader& read, CommandLine& line) {
  const std::optional<std::string> list = line.value() ? line.value() : line.take("-c");
  if (!list) read.refuse(line.text());
  Parsed parsed;
  if (!restricted(read.machine)) {
    parsed.layout = singles(read.list(*list));
  } else {
    const std::vector<int> order = likwid_order(read.machine);
    for (const std::string& word : split(*list, ','))
      for (const int n : read.range(word)) {
        if (static_cast<std::size_t>(n) >= order.size())
          throw UsageError("likwid", "found number " + std::to_string(n) + " in " + quote(word),
                           "0-" + std::to_string(order.size() - 1) + ", which number the allowed CPUs");
        add(parsed.layout, {order[static_cast<std::size_t>(n)]});
      }
  }
  if (line.program() == "likwid-perfctr") return parsed;  // its -m and -i mean something else
  const bool interleave = line.take("-i").has_value(), bind = line.take("-m").has_value();
  if (interleave && bind) throw UsageError("likwid", "found two memory policies, -i and -m", "one of the two");
  if (interleave || bind) parsed.memory.policy = interleave ? "interleave" : "bind";
  return parsed;
}

}  // namespace

std::vector<Syntax> likwid() {
  return {
      {"likwid",
       "likwid-pin",
       "'-c 0,4,9-11'",
       "absolute; if not all CPUs are allowed, relative to the allowed ones",
       false,
       true,
       emit_likwid,
       {{"likwid-pin", "likwid-perfctr"},
        {{"-c -C", 1},
         {"-i", 0},
         {"-m", 0},
         {"-S", 0},
         {"-p", 0},
         {"-q", 0},
         {"-v", 0},
         {"-s", 1},
         {"-d", 1},
         {"-V", 1},
         {"-g", 1},
         {"-o", 1},
         {"-t", 1}}},
       parse_likwid},
  };
}

}  // namespace mm::place::syntax
