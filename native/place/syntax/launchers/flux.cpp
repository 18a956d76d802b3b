#include "place/syntax/form.hpp"

#include <cctype>
#include <iterator>
#include <map>
#include <set>

namespace mm::place::syntax {
namespace {

Form emit_flux(const Machine& machine, const Layout& layout, const MemoryPolicy& memory) {
  return with_numactl("flux",
                      {{"flux", "run", "-n", count(layout), "-o", "cpu-affinity=map:" + lists(layout, ";")}, {}, {}},
                      machine, layout, memory);
}

Parsed parse_flux(const Reader& read, CommandLine& line) {
  std::string value = line.value().value_or("");
  for (const std::string& setting : line.take_all("-o"))
    if (setting.starts_with("cpu-affinity="))
      value = setting;
    else
      line.put_back("-o", setting);
  for (const char* prefix : {"cpu-affinity=", "verbose,", "dry-run,"})
    if (value.starts_with(prefix)) value = value.substr(std::string(prefix).size());
  if (value.empty()) read.refuse(line.text());
  Layout layout;
  for (const std::string& word : split(value.starts_with("map:") ? value.substr(4) : value, ';'))
    add(layout, word.starts_with("0x") ? read.mask(word) : read.list(word));
  return {limited_to_tasks(read, layout, line.take("-n"), false), {}};
}

}  // namespace

std::vector<Syntax> flux() {
  return {
      {"flux",
       "flux run: -o cpu-affinity=map:",
       "'map:0,4;1,5' or masks 'map:0x11;0x22'",
       kAbsolute,
       false,
       false,
       emit_flux,
       {{"flux"},
        {{"-o --setopt", 1},
         {"-n --ntasks", 1},
         {"-N --nodes", 1},
         {"-c --cores-per-task", 1},
         {"-g --gpus-per-task", 1},
         {"-t --time-limit", 1},
         {"-q --queue", 1},
         {"--env", 1},
         {"--output", 1}},
        false,
        {"run", "submit", "alloc", "batch"}},
       parse_flux},
  };
}

}  // namespace mm::place::syntax
