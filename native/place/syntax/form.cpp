#include "place/syntax/form.hpp"

#include <cctype>

namespace mm::place::syntax {

std::vector<int> cpus_of(const Reader& read, const std::string& list) {
  std::vector<int> all;
  for (const Cpu& cpu : read.machine.cpus) all.push_back(cpu.id);
  const std::vector<int> cpus = parse_cpu_list(read.form, list, all);
  for (const int cpu : cpus) read.known(cpu, list);
  return cpus;
}

std::vector<int> ascending(std::vector<int> cpus) {
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

void add(Layout& layout, const std::vector<int>& part, std::size_t times) {
  if ((layout.parts.size() + times) * part.size() > kMaxNumbers)
    throw UsageError("layout", "too many CPUs in total", "at most 1048576");
  layout.parts.insert(layout.parts.end(), times, ascending(part));
}

Layout singles(const std::vector<int>& cpus) {
  Layout layout;
  for (const int cpu : cpus) layout.parts.push_back({cpu});
  return layout;
}

std::string hex(const std::vector<int>& bits) {
  std::string digits(static_cast<std::size_t>(bits.back()) / 4 + 1, '0');
  for (const int b : bits) {
    char& digit = digits[digits.size() - 1 - static_cast<std::size_t>(b) / 4];
    digit = "0123456789abcdef"[(digit <= '9' ? digit - '0' : digit - 'a' + 10) | 1 << b % 4];
  }
  return "0x" + digits;
}

std::string plain(const std::vector<int>& cpus, const char* by) {
  Words words;
  for (const int cpu : cpus) words.push_back(std::to_string(cpu));
  return join(words, by);
}

std::string lists(const Layout& layout, const char* by) {
  Words words;
  for (const auto& part : layout.parts) words.push_back(cpu_list(part));
  return join(words, by);
}

// Returns CPUs in hwloc's order, core by core.
std::vector<Cpu> in_order(const Machine& machine, const std::vector<int>& among) {
  std::vector<int> online;
  for (const Cpu& cpu : machine.cpus)
    if (std::binary_search(among.begin(), among.end(), cpu.id)) online.push_back(cpu.id);
  std::vector<Cpu> cpus;
  for (const int id : fill_order(machine, "compact", online)) cpus.push_back(machine.cpu(id));
  return cpus;
}

const std::vector<int>& numbered_cpus(const Machine& machine) {
  return machine.origin == "host" ? machine.group : machine.allowed;
}
std::vector<Cpu> logical(const Machine& machine) { return in_order(machine, numbered_cpus(machine)); }

[[noreturn]] void no_weights(const std::string& form) {
  throw UsageError(form, "cannot express the memory policy 'weighted'", "meshmark run --memory weighted=…");
}

std::vector<int> nodes_with_memory(const Machine& machine) {
  std::vector<int> nodes, all;
  for (const Node& node : machine.nodes) {
    all.push_back(node.id);
    if (node.bytes > 0) nodes.push_back(node.id);
  }
  return nodes.empty() ? all : nodes;
}

Layout limited_to_tasks(const Reader& read, Layout layout, const std::optional<std::string>& tasks, bool repeats) {
  if (!tasks) return layout;
  const auto count = static_cast<std::size_t>(read.number(*tasks));
  if (count < 1) read.refuse(*tasks);
  if (count > layout.parts.size() && !repeats)
    throw UsageError(read.form,
                     "found " + *tasks + " tasks for " + std::to_string(layout.parts.size()) + " sets of CPUs",
                     "as many sets as tasks");
  Layout limited;
  for (std::size_t i = 0; i < count; ++i) add(limited, layout.parts[i % layout.parts.size()]);
  return limited;
}

/// Returns numactl's options for a memory policy; empty for the default.
Words numactl_memory(const std::string& form, const Machine& machine, const Layout& layout,
                     const MemoryPolicy& memory) {
  if (memory.policy == "default") return {};
  if (memory.policy == "local") return {"--localalloc"};
  const std::vector<int> nodes = requested_nodes(machine, memory, layout.cpus());
  const std::string list = cpu_list(nodes);
  if (memory.policy == "bind") return {"--membind=" + list};
  if (memory.policy == "preferred") return {(nodes.size() == 1 ? "--preferred=" : "--preferred-many=") + list};
  if (memory.policy == "interleave") return {"--interleave=" + list};
  no_weights(form);
}

Form with_numactl(const std::string& form, Form result, const Machine& machine, const Layout& layout,
                  const MemoryPolicy& memory) {
  const Words words = numactl_memory(form, machine, layout, memory);
  if (words.empty()) return result;
  result.words.emplace_back("numactl");
  result.words.insert(result.words.end(), words.begin(), words.end());
  return result;
}

std::string count(const Layout& layout) { return std::to_string(layout.parts.size()); }

}  // namespace mm::place::syntax
