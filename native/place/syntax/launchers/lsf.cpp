#include "place/syntax/form.hpp"

#include <cctype>
#include <iterator>
#include <map>
#include <set>

namespace mm::place::syntax {
namespace {

Form emit_lsf(const Machine& machine, const Layout& layout, const MemoryPolicy& memory) {
  return with_numactl(
      "lsf",
      {{"bsub", "-n", std::to_string(layout.parts.size())}, {{"LSB_USER_BIND_CPU_LIST", cpu_list(layout.cpus())}}, {}},
      machine, layout, memory);
}

Parsed parse_lsf(const Reader& read, CommandLine& line) {
  std::vector<std::string> lists;
  for (const char* variable : {"LSB_USER_BIND_CPU_LIST", "LSB_BIND_CPU_LIST"})
    if (const auto text = line.take_variable(variable)) lists.push_back(*text);
  if (line.value()) lists.push_back(*line.value());
  if (lists.empty()) read.refuse(line.text());
  if (lists.front() != lists.back()) throw UsageError("lsf", "found two lists of CPUs", "one");
  line.take("-n");  // all tasks share the mask
  std::string list = join(shell_words(lists.front()), ",");
  return {{{ascending(read.list(list))}}, {}};
}

}  // namespace

std::vector<Syntax> lsf() {
  return {
      {"lsf",
       "bsub, if the site sets BIND_JOB=USER_CPU_LIST",
       "a list such as 1,2,5,7-9",
       kAbsolute,
       true,
       false,
       emit_lsf,
       {{"bsub"},
        {{"-n", 1},
         {"-R", 1},
         {"-q", 1},
         {"-J", 1},
         {"-o", 1},
         {"-e", 1},
         {"-W", 1},
         {"-m", 1},
         {"-P", 1},
         {"-x", 0},
         {"-I", 0},
         {"-K", 0}}},
       parse_lsf},
  };
}

}  // namespace mm::place::syntax
