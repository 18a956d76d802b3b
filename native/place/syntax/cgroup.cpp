#include "form.hpp"

#include <cctype>
#include <iterator>
#include <map>
#include <set>

namespace mm::place::syntax {
namespace {

Form emit_cpuset(const Machine& machine, const Layout& layout, const Memory& memory) {
  std::vector<int> nodes;
  for (const Node& node : machine.nodes)
    if (node.bytes > 0) nodes.push_back(node.id);
  const bool bind = memory.policy == "bind";
  if (bind) nodes = requested_nodes(machine, memory, layout.cpus());
  Form form{{"sh", "-c", "echo $$ > cgroup.procs && exec \"$@\"", "sh"},
            {},
            {{"cpuset.cpus", cpu_list(layout.parts[0]) + "\n"}}};
  if (!nodes.empty()) form.files.emplace_back("cpuset.mems", cpu_list(nodes) + "\n");
  return bind ? form : with_numactl("cpuset", form, machine, layout, memory);
}

Layout parse_cpuset(const Reader& read, const std::string& text) {
  const Words words = shell_words(text);
  const auto into = std::find(words.begin(), words.end(), ">");
  return {
      {ascending(read.list(into == words.end() || into == words.begin() ? after(text, {"cpuset.cpus="}) : into[-1]))}};
}

}  // namespace

std::vector<Syntax> cgroup() {
  return {
      {"cpuset", "files of a control group", "a list such as 0-3,8", kAbsolute, true, false, emit_cpuset, parse_cpuset},
  };
}

}  // namespace mm::place::syntax
