#include "place/syntax/form.hpp"

#include <cctype>
#include <iterator>
#include <map>
#include <set>

namespace mm::place::syntax {
namespace {

Form emit_numactl(const Machine& machine, const Layout& layout, const MemoryPolicy& memory) {
  Form form{{"numactl", "--physcpubind=" + cpu_list(layout.parts[0])}, {}, {}};
  for (const std::string& word : numactl_memory("numactl", machine, layout, memory)) form.words.push_back(word);
  return form;
}

// Parses LIST, +LIST (relative to `domain`), !LIST (all of `domain` but these), all. `exist`: the numbers that exist.
std::vector<int> numactl_set(const Reader& read, const std::string& value, const std::vector<int>& domain,
                             const std::vector<int>& exist, const std::string& kind) {
  if (value == "all") return domain;
  const bool inverse = value.starts_with("!");
  const bool relative = value.substr(inverse ? 1 : 0).starts_with("+");
  std::vector<int> numbers;
  for (const std::string& word : split(value.substr((inverse ? 1U : 0U) + (relative ? 1U : 0U)), ','))
    for (const int n : read.range(word)) {
      if (relative && static_cast<std::size_t>(n) >= domain.size())
        throw UsageError("numactl", "found number " + std::to_string(n) + " in " + quote(value),
                         "+0 to +" + std::to_string(domain.size() - 1));
      const int number = relative ? domain[static_cast<std::size_t>(n)] : n;
      if (!std::binary_search(exist.begin(), exist.end(), number))
        throw UsageError("numactl", "found " + kind + " " + std::to_string(number) + " in " + quote(value),
                         kind + "s " + cpu_list(exist));
      numbers.push_back(number);
    }
  numbers = ascending(numbers);
  if (!inverse) return numbers;
  std::vector<int> others;
  std::set_difference(domain.begin(), domain.end(), numbers.begin(), numbers.end(), std::back_inserter(others));
  if (others.empty()) read.refuse(value);
  return others;
}

std::vector<int> ids_of_cpus(const Machine& machine) {
  std::vector<int> all;
  for (const Cpu& cpu : machine.cpus) all.push_back(cpu.id);
  return all;
}

std::vector<int> cpus_of_nodes(const Reader& read, const std::string& value, const std::vector<int>& domain) {
  std::vector<int> all, with_cpus;
  for (const Node& node : read.machine.nodes) {
    all.push_back(node.id);
    if (!node.cpus.empty()) with_cpus.push_back(node.id);
  }
  const std::vector<int> nodes = numactl_set(read, value, value == "all" ? with_cpus : all, all, "node");
  std::vector<int> cpus;
  for (const int id : nodes) {
    const std::vector<int>& local = read.machine.nodes[read.machine.node_at(id)].cpus;
    if (local.empty())
      throw UsageError("numactl", "found node " + std::to_string(id) + " in " + quote(value) + ", which has no CPUs",
                       "nodes " + cpu_list(with_cpus));
    std::set_intersection(local.begin(), local.end(), domain.begin(), domain.end(), std::back_inserter(cpus));
  }
  if (cpus.empty())
    throw UsageError("numactl", "found " + quote(value) + ", nodes of which this process may use no CPU",
                     "CPUs " + cpu_list(domain));
  return ascending(cpus);
}

Parsed parse_numactl(const Reader& read, CommandLine& line) {
  const bool all = line.take("--all").has_value();  // first, since it changes what the other options mean
  const std::vector<int> exist = ids_of_cpus(read.machine), domain = all ? exist : read.machine.allowed;
  if (line.value()) return {{{numactl_set(read, *line.value(), domain, exist, "CPU")}}, {}};
  std::optional<std::string> nodes = line.take("--cpunodebind");
  if (const auto old_name_value = line.take("--cpubind")) {  // the name until numactl 1.0
    if (nodes) throw UsageError("numactl", "found --cpubind together with --cpunodebind", "one of the two");
    nodes = old_name_value;
  }
  const std::optional<std::string> cpus = line.take("--physcpubind");
  if (cpus && nodes)
    throw UsageError("numactl", "found --physcpubind together with --cpunodebind, each of which names the CPUs",
                     "one of the two");
  const std::optional<MemoryPolicy> memory = take_numactl_memory(read, line);
  if (!cpus && !nodes && !memory)
    throw UsageError("numactl", "found neither CPUs nor a memory policy in " + quote(line.text()),
                     "--physcpubind, --cpunodebind, --membind, --interleave, --preferred or --localalloc");
  const std::vector<int> part = cpus    ? numactl_set(read, *cpus, domain, exist, "CPU")
                                : nodes ? cpus_of_nodes(read, *nodes, domain)
                                        : domain;
  return {{{part}}, memory.value_or(MemoryPolicy{})};
}

Form emit_taskset(const Machine& machine, const Layout& layout, const MemoryPolicy& memory) {
  return with_numactl("taskset", {{"taskset", "-c", cpu_list(layout.parts[0])}, {}, {}}, machine, layout, memory);
}

}  // namespace

const KnownProgram& numactl_program() {
  static const KnownProgram program = {{"numactl"},
                                       {{"--all -a", 0},
                                        {"--interleave -i", 1},
                                        {"--weighted-interleave -w", 1},
                                        {"--preferred -p", 1},
                                        {"--preferred-many -P", 1},
                                        {"--membind -m", 1},
                                        {"--cpunodebind -N", 1},
                                        {"--cpubind -c", 1},
                                        {"--physcpubind -C", 1},
                                        {"--localalloc -l", 0},
                                        {"--balancing -b", 0},
                                        {"--strict -t", 0},
                                        {"--touch -T", 0},
                                        {"--huge -u", 0},
                                        {"--offset -o", 1},
                                        {"--length -L", 1},
                                        {"--shm -S", 1},
                                        {"--file -f", 1},
                                        {"--shmid -I", 1},
                                        {"--shmmode -M", 1},
                                        {"--dump -d", 0},
                                        {"--dump-nodes -D", 0},
                                        {"--show -s", 0},
                                        {"--hardware -H", 0}},
                                       true};
  return program;
}

const KnownProgram& taskset_program() {
  static const KnownProgram program = {
      {"taskset"},
      {{"--cpu-list -c", 0}, {"--all-tasks -a", 0}, {"--pid -p", 0}, {"--help -h", 0}, {"--version -V", 0}},
      true};
  return program;
}

Parsed parse_taskset(const Reader& read, CommandLine& line) {
  if (line.value()) {
    const std::string& value = *line.value();
    return {{{value.starts_with("0x") ? read.mask(value) : ascending(read.list(value))}}, {}};
  }
  const bool list = line.take("--cpu-list").has_value(), pid = line.take("--pid").has_value();
  Words command = line.command();
  if (command.empty()) read.refuse(line.text());
  const std::string value = command.front();
  command.erase(command.begin());
  Parsed parsed{{{list ? ascending(read.list(value)) : read.mask(value)}}, {}};
  if (pid && !command.empty()) {
    parsed.left_out.push_back("-p " + command.front());
    command.clear();
  }
  line.set_command(command);
  return parsed;
}

std::optional<MemoryPolicy> take_numactl_memory(const Reader& read, CommandLine& line) {
  constexpr std::pair<const char*, const char*> kOptions[] = {{"--membind", "bind"},
                                                              {"--interleave", "interleave"},
                                                              {"--preferred", "preferred"},
                                                              {"--preferred-many", "preferred"},
                                                              {"--localalloc", "local"}};
  std::vector<int> all;
  for (const Node& node : read.machine.nodes) all.push_back(node.id);
  const std::vector<int> with_memory = nodes_with_memory(read.machine);
  std::optional<MemoryPolicy> memory;
  for (const auto& [option, policy] : kOptions) {
    const auto value = line.take(option);
    if (!value) continue;
    if (memory)
      throw UsageError("numactl", std::string("found ") + option + " together with another memory policy",
                       "one memory policy");
    memory = MemoryPolicy{policy, {}, {}, "default"};
    if (memory->policy == "local") continue;
    memory->nodes = numactl_set(read, *value, with_memory, all, "node");
    for (const int node : memory->nodes)
      if (!std::binary_search(with_memory.begin(), with_memory.end(), node))
        throw UsageError("numactl",
                         "found node " + std::to_string(node) + " in " + quote(*value) + ", which has no memory",
                         "nodes " + cpu_list(with_memory));
    if (std::string(option) == "--preferred" && memory->nodes.size() > 1)
      throw UsageError("numactl", "found several nodes in --preferred=" + *value, "one node, or --preferred-many");
  }
  return memory;
}

std::vector<Syntax> numactl() {
  return {
      {"numactl", "numactl", "'--physcpubind=0-3,8', '-N 0 -m 0', '+0-3' or '!0'", kAbsolute, true, false, emit_numactl,
       numactl_program(), parse_numactl},
      {"taskset", "taskset", "'-c 0-6:2,8' or '0x11'", kAbsolute, true, false, emit_taskset, taskset_program(),
       parse_taskset},
  };
}

}  // namespace mm::place::syntax
