#include "form.hpp"

#include <cctype>
#include <iterator>
#include <map>
#include <set>

namespace mm::place::syntax {
namespace {

Form emit_numactl(const Machine& machine, const Layout& layout, const Memory& memory) {
  Form form{{"numactl", "--physcpubind=" + cpu_list(layout.parts[0])}, {}, {}};
  for (const std::string& word : numactl_memory("numactl", machine, layout, memory)) form.words.push_back(word);
  return form;
}

// LIST, +LIST (relative to the allowed CPUs), !LIST (all allowed ones but these), all.
Layout parse_numactl(const Reader& read, const std::string& text) {
  const std::string value = after(text, {"--physcpubind=", "--physcpubind", "-C"});
  const std::vector<int>& allowed = read.machine.allowed;
  if (value == "all") return {{allowed}};
  const bool others = value.starts_with("!");
  const bool relative = value.substr(others ? 1 : 0).starts_with("+");
  const std::string rest = value.substr((others ? 1U : 0U) + (relative ? 1U : 0U));
  std::vector<int> cpus;
  if (relative) {
    for (const std::string& word : split(rest, ','))
      for (const int n : read.range(word)) {
        if (static_cast<std::size_t>(n) >= allowed.size())
          throw UsageError("numactl", "found number " + std::to_string(n) + " in " + quote(value),
                           "+0 to +" + std::to_string(allowed.size() - 1));
        cpus.push_back(allowed[static_cast<std::size_t>(n)]);
      }
  } else {
    cpus = read.list(rest);
  }
  cpus = ascending(cpus);
  if (others) {
    std::vector<int> left;
    std::set_difference(allowed.begin(), allowed.end(), cpus.begin(), cpus.end(), std::back_inserter(left));
    if (left.empty()) read.refuse(value);
    cpus = left;
  }
  return {{cpus}};
}

Form emit_taskset(const Machine& machine, const Layout& layout, const Memory& memory) {
  return with_numactl("taskset", {{"taskset", "-c", cpu_list(layout.parts[0])}, {}, {}}, machine, layout, memory);
}

Layout parse_taskset(const Reader& read, const std::string& text) {
  const Words words = shell_words(text);
  const bool list = std::any_of(words.begin(), words.end(),
                                [](const std::string& w) { return w.starts_with("-c") || w == "--cpu-list"; });
  const std::string value = after(text, {"--cpu-list", "-c", "taskset"});
  if (!list && (value.starts_with("0x") || (!words.empty() && words[0] == "taskset"))) return {{read.mask(value)}};
  return {{ascending(read.list(value))}};
}

}  // namespace

std::vector<Syntax> numactl() {
  return {
      {"numactl", "numactl", "'--physcpubind=0-3,8', '+0-3' or '!0'", kAbsolute, true, false, emit_numactl,
       parse_numactl},
      {"taskset", "taskset", "'-c 0-6:2,8' or '0x11'", kAbsolute, true, false, emit_taskset, parse_taskset},
  };
}

}  // namespace mm::place::syntax
