#include "place/syntax/form.hpp"

#include <cctype>
#include <iterator>
#include <map>
#include <set>

namespace mm::place::syntax {
namespace {

Form emit_mpich(const Machine& machine, const Layout& layout, const MemoryPolicy& memory) {
  Words sets;
  for (const auto& part : layout.parts) sets.push_back(plain(part, "+"));
  return with_numactl("mpich", {{"mpiexec", "-n", count(layout), "-bind-to", "user:" + join(sets, ",")}, {}, {}},
                      machine, layout, memory);
}

Parsed parse_mpich(const Reader& read, CommandLine& line) {
  const std::string value = line.value().value_or(line.take("-bind-to").value_or(line.text()));
  if (!value.starts_with("user:")) read.refuse(value);
  Layout layout;
  for (std::string word : split(value.substr(5), ',')) {
    const std::size_t times = read.repeats(word, 'x');
    add(layout, read.list(word, '+'), times);
  }
  if (std::find(line.command().begin(), line.command().end(), ":") != line.command().end())
    throw UsageError("mpich", "found several programs, separated by ':'", "one program");
  return {limited_to_tasks(read, layout, line.take("-n"), true), {}};
}

}  // namespace

std::vector<Syntax> mpich() {
  return {
      {"mpich",
       "mpiexec of MPICH (hydra): -bind-to user:",
       "'user:0+1,2+3', with 0-3 and 0x4",
       kAbsolute,
       false,
       false,
       emit_mpich,
       {{"mpiexec", "mpirun", "mpiexec.hydra", "mpirun.hydra", "mpiexec.mpich", "mpirun.mpich"},
        {{"-bind-to --bind-to -binding", 1},
         {"-map-by --map-by", 1},
         {"-membind --membind", 1},
         {"-n --n -np --np", 1},
         {"-ppn", 1},
         {"-host", 1},
         {"-hosts", 1},
         {"-f", 1},
         {"-wdir", 1},
         {"-env", 2},
         {"-genv", 2}}},
       parse_mpich},
  };
}

}  // namespace mm::place::syntax
