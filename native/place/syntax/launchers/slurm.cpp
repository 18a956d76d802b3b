#include "place/syntax/form.hpp"

#include <cctype>
#include <iterator>
#include <map>
#include <set>

namespace mm::place::syntax {
namespace {

Form emit_slurm(const Machine& machine, const Layout& layout, const MemoryPolicy& memory, bool masks) {
  Words sets;
  for (const auto& part : layout.parts) masks = masks || part.size() > 1;
  for (const auto& part : layout.parts) sets.push_back(masks ? hex(part) : std::to_string(part[0]));
  Form form{
      {"srun", "-n", count(layout), std::string("--cpu-bind=") + (masks ? "mask_cpu:" : "map_cpu:") + join(sets, ",")},
      {},
      {}};
  if (memory.policy == "local") {
    form.words.emplace_back("--mem-bind=local");
  } else if (memory.policy == "bind") {
    Words nodes;  // one per part, unless listed
    for (const auto& part : layout.parts) nodes.push_back(hex(requested_nodes(machine, memory, part)));
    if (!memory.nodes.empty()) nodes.resize(1);  // Slurm repeats the list for further tasks
    form.words.push_back("--mem-bind=mask_mem:" + join(nodes, ","));
  } else {
    return with_numactl("slurm", form, machine, layout, memory);
  }
  return form;
}

// Parses a number in decimal or, after 0x, in hexadecimal, as in map_cpu and map_mem.
int map_number(const Reader& read, const std::string& word) {
  if (!word.starts_with("0x")) return read.number(word);
  if (word.size() < 3 || word.size() > 7 || word.find_first_not_of("0123456789abcdefABCDEF", 2) != std::string::npos)
    read.refuse(word);
  return std::stoi(word, nullptr, 16);
}

// Returns the value without `verbose,` and the like.
std::string without_verbosity(std::string value) {
  for (bool shorter = true; shorter;) {
    shorter = false;
    for (const std::string word : {"verbose,", "quiet,", "v,", "q,"})
      if (value.starts_with(word)) value = value.substr(word.size()), shorter = true;
  }
  return value;
}

// Returns the policy of --mem-bind; nullopt if it differs by task. Masks of the nodes around each task's CPUs are one
// policy for all tasks.
std::optional<MemoryPolicy> memory_of(const Reader& read, const std::string& text, const Layout& layout) {
  std::string value = without_verbosity(text);
  const bool preferred = value.starts_with("prefer,");
  if (preferred) value = value.substr(7);
  MemoryPolicy memory{preferred ? "preferred" : "bind", {}, {}, "default"};
  if (value == "none" && !preferred) return MemoryPolicy{};
  if (value == "local") {
    if (!preferred) memory.policy = "local";
    return memory;
  }
  const bool map = value.starts_with("map_mem:");
  if (!map && !value.starts_with("mask_mem:")) return std::nullopt;
  const std::vector<int> with_memory = nodes_with_memory(read.machine);
  std::vector<std::vector<int>> nodes;
  for (std::string word : split(value.substr(value.find(':') + 1), ',')) {
    const std::size_t times = read.repeats(word, '*');
    const auto bits = map ? std::optional(std::vector<int>{map_number(read, word)}) : parse_mask(word);
    if (!bits) read.refuse(word);
    if (!std::includes(with_memory.begin(), with_memory.end(), bits->begin(), bits->end()))
      throw UsageError("slurm", "found " + quote(word) + " in " + quote(value), "nodes " + cpu_list(with_memory));
    if (nodes.size() + times > kMaxNumbers) read.refuse(word);
    nodes.insert(nodes.end(), times, *bits);
  }
  bool same_for_all = true, is_local = true;
  for (std::size_t i = 0; i < layout.parts.size(); ++i) {
    const std::vector<int>& task_nodes = nodes[i % nodes.size()];  // Slurm begins a short list again
    same_for_all = same_for_all && task_nodes == nodes.front();
    is_local = is_local && task_nodes == requested_nodes(read.machine, memory, layout.parts[i]);
  }
  if (!is_local && !same_for_all) return std::nullopt;
  if (!is_local || layout.parts.size() == 1) memory.nodes = nodes.front();
  return memory;
}

Parsed parse_slurm(const Reader& read, CommandLine& line) {
  std::optional<std::string> text = line.value() ? line.value() : line.take("--cpu-bind");
  if (!text) text = line.take_variable("SLURM_CPU_BIND");
  const std::string value = without_verbosity(text.value_or(line.text()));
  const bool map = value.starts_with("map_cpu:");
  if (!map && !value.starts_with("mask_cpu:")) read.refuse(value);
  Layout layout;
  for (std::string word : split(value.substr(value.find(':') + 1), ',')) {
    const std::size_t times = read.repeats(word, '*');
    if (map)
      add(layout, {read.known(map_number(read, word), word)}, times);
    else
      add(layout, read.mask(word), times);
  }
  Parsed parsed{limited_to_tasks(read, layout, line.take("-n"), true), {}};
  auto memory = line.take("--mem-bind");
  if (!memory) memory = line.take_variable("SLURM_MEM_BIND");
  if (!memory) return parsed;
  if (const auto policy = memory_of(read, *memory, parsed.layout))
    parsed.memory = *policy;
  else
    parsed.left_out.push_back("--mem-bind=" + *memory);
  return parsed;
}

}  // namespace

std::vector<Syntax> slurm() {
  const KnownProgram program = {{"srun", "sbatch", "salloc"},
                                {{"--cpu-bind --cpu_bind", 1},
                                 {"--mem-bind --mem_bind", 1},
                                 {"-n --ntasks", 1},
                                 {"-N --nodes", 1},
                                 {"-c --cpus-per-task", 1},
                                 {"-p --partition", 1},
                                 {"-t --time", 1},
                                 {"-A --account", 1},
                                 {"-J --job-name", 1},
                                 {"-w --nodelist", 1},
                                 {"-x --exclude", 1},
                                 {"-o --output", 1},
                                 {"-e --error", 1},
                                 {"-i --input", 1},
                                 {"-m --distribution", 1},
                                 {"-C --constraint", 1},
                                 {"-D --chdir", 1},
                                 {"-q --qos", 1},
                                 {"-G --gpus", 1},
                                 {"--mem", 1},
                                 {"--mem-per-cpu", 1},
                                 {"--gres", 1},
                                 {"--hint", 1},
                                 {"--mpi", 1},
                                 {"--ntasks-per-node", 1},
                                 {"--ntasks-per-socket", 1},
                                 {"--exclusive", 0},
                                 {"--overlap", 0},
                                 {"-l --label", 0},
                                 {"-u --unbuffered", 0}}};
  const auto form = [&](const char* name, const char* help, bool masks) -> Syntax {
    return {name,
            help,
            "'map_cpu:0,1' or 'mask_cpu:0x11,0x22', with 0*4",
            kAbsolute,
            false,
            false,
            [masks](auto& m, auto& l, auto& memory) { return emit_slurm(m, l, memory, masks); },
            program,
            parse_slurm};
  };
  return {form("slurm", "srun: map_cpu for single CPUs, else mask_cpu", false),
          form("slurm-mask", "srun: mask_cpu", true)};
}

}  // namespace mm::place::syntax
