#include "place/syntax/form.hpp"

#include <cctype>
#include <iterator>
#include <map>
#include <set>

namespace mm::place::syntax {
namespace {

std::string rank_file(const std::vector<std::vector<int>>& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += "rank " + std::to_string(i) + "=localhost slot=" + cpu_list(parts[i]) + "\n";
  return text;
}

// Parses `rank N=HOST slot=LIST …`, with each rank once, all on one host. Numbers are absolute.
std::vector<std::vector<int>> parse_rank_file(const Reader& read, const std::string& text) {
  std::string without_comments;
  for (const std::string& text_line : split(text, '\n'))
    without_comments += text_line.substr(0, text_line.find('#')) + "\n";
  const Words words = shell_words(join(shell_words(without_comments), " "));
  std::map<int, std::vector<int>> ranks;
  std::string host;
  auto at = std::find(words.begin(), words.end(), "rank");
  if (at == words.end()) read.refuse(words.empty() ? "" : words[0]);
  for (; at != words.end() && *at != ">"; at += 3) {
    if (*at != "rank" || words.end() - at < 3) read.refuse(*at);
    const std::string &assignment = at[1], &slot = at[2];
    const std::size_t equals = assignment.find('=');
    if (equals == std::string::npos || !slot.starts_with("slot=")) read.refuse(assignment + " " + slot);
    if (const std::string h = assignment.substr(equals + 1); host.empty() && !h.empty())
      host = h;
    else if (h != host || h.empty())
      throw UsageError(read.form, "found " + quote(assignment), "one host, since a layout covers one node");
    std::vector<int> numbers;
    for (const std::string& word : split(slot.substr(5), ',')) {
      const std::vector<int> range_numbers = read.range(word);
      if (word.find(':') != std::string::npos) read.refuse(word);
      numbers.insert(numbers.end(), range_numbers.begin(), range_numbers.end());
    }
    if (!ranks.emplace(read.number(assignment.substr(0, equals)), ascending(numbers)).second) read.refuse(assignment);
  }
  std::vector<std::vector<int>> parts;
  for (const auto& [rank, numbers] : ranks) {
    if (rank != static_cast<int>(parts.size()))
      throw UsageError(read.form, "rank " + std::to_string(parts.size()) + " is missing", "all ranks from 0");
    parts.push_back(numbers);
  }
  return parts;
}

Form emit_openmpi(const Machine& machine, const Layout& layout, const MemoryPolicy& memory) {
  Form form{{"mpirun", "-np", count(layout), "--use-hwthread-cpus", "--mca", "rmaps_rank_file_physical", "1",
             "--rankfile", "{rankfile}"},
            {},
            {{"rankfile", rank_file(layout.parts)}}};
  return with_numactl("openmpi", form, machine, layout, memory);
}

// Takes the text of the rank file, and the option of an mpirun that names it.
std::string take_rank_file(const Reader& read, CommandLine& line) {
  const auto name = line.take("--rankfile");
  auto file = name ? line.take_file(name->substr(name->rfind('/') + 1)) : line.take_file("rankfile");
  if (!file && line.value()) file = line.text();
  if (!file)
    throw UsageError(read.form, "found no rank file in " + quote(line.text()),
                     "the text of the rank file, " + read.example);
  return *file;
}

Parsed parse_openmpi(const Reader& read, CommandLine& line) {
  Layout layout{parse_rank_file(read, take_rank_file(read, line))};
  for (const auto& part : layout.parts)
    for (const int cpu : part) read.known(cpu, "slot=" + cpu_list(part));
  bool physical = line.program().empty();
  for (const std::string& parameter : line.take_all("--mca"))
    if (parameter == "rmaps_rank_file_physical 1" || parameter == "rmaps_rank_file_physical true")
      physical = true;
    else
      line.put_back("--mca", parameter);
  const bool threads = line.take("--use-hwthread-cpus").has_value() || line.program().empty();
  if (!physical || !threads)
    throw UsageError("openmpi",
                     std::string("found mpirun without ") +
                         (physical ? "--use-hwthread-cpus, which binds whole cores"
                                   : "--mca rmaps_rank_file_physical 1, which numbers cores logically"),
                     "both options, or the text of the rank file alone");
  return {limited_to_tasks(read, layout, line.take("-np"), false), {}};
}

Form emit_openmpi5(const Machine& machine, const Layout& layout, const MemoryPolicy& memory) {
  const std::vector<Cpu> order = logical(machine);
  std::map<int, int> number;
  for (std::size_t i = 0; i < order.size(); ++i) number[order[i].id] = static_cast<int>(i);
  std::vector<std::vector<int>> parts;
  for (const auto& part : layout.parts) {
    auto& numbers = parts.emplace_back();
    for (const int cpu : part) {
      if (!number.contains(cpu))
        throw UsageError(
            "openmpi5",
            "numbers only the CPUs of the control group, and CPU " + std::to_string(cpu) + " is not among them",
            "CPUs " + cpu_list(numbered_cpus(machine)));
      numbers.push_back(number[cpu]);
    }
    numbers = ascending(numbers);
  }
  Form form{{"mpirun", "-np", count(layout)}, {}, {{"rankfile", rank_file(parts)}}};
  // Version 5 refuses ranks that share a CPU unless that is allowed explicitly.
  std::vector<int> all_cpus;
  for (const auto& part : layout.parts) all_cpus.insert(all_cpus.end(), part.begin(), part.end());
  if (ascending(all_cpus).size() < all_cpus.size())
    form.words.insert(form.words.end(), {"--bind-to", "hwthread:overload-allowed"});
  form.words.insert(form.words.end(), {"--map-by", "rankfile:file={rankfile}:hwtcpus"});
  return with_numactl("openmpi5", form, machine, layout, memory);
}

Parsed parse_openmpi5(const Reader& read, CommandLine& line) {
  const std::vector<Cpu> order = logical(read.machine);
  for (const std::string& mapping : line.take_all("--map-by"))  // rankfile:file=NAME:hwtcpus
    for (const std::string& word : split(mapping, ':'))
      if (word.starts_with("file=")) line.rename_file(word.substr(5), "rankfile");
  for (const std::string& binding : line.take_all("--bind-to"))
    if (binding != "hwthread:overload-allowed") line.put_back("--bind-to", binding);
  Layout layout{parse_rank_file(read, take_rank_file(read, line))};
  for (auto& part : layout.parts) {
    for (int& n : part) {
      if (static_cast<std::size_t>(n) >= order.size())
        throw UsageError(
            "openmpi5", "found number " + std::to_string(n) + " in 'slot=" + cpu_list(part) + "'",
            "0-" + std::to_string(order.size() - 1) + ", which number the CPUs of the control group core by core");
      n = order[static_cast<std::size_t>(n)].id;
    }
    part = ascending(part);
  }
  return {limited_to_tasks(read, layout, line.take("-np"), false), {}};
}

}  // namespace

std::vector<Syntax> open_mpi() {
  const KnownProgram program = {{"mpirun", "mpiexec", "orterun", "prterun", "mpirun.openmpi", "mpiexec.openmpi"},
                                {{"-np --np -n --n -c", 1},
                                 {"--rankfile -rankfile --rf -rf", 1},
                                 {"--mca -mca --prtemca --pmixmca", 2},
                                 {"--use-hwthread-cpus -use-hwthread-cpus", 0},
                                 {"--map-by -map-by", 1},
                                 {"--bind-to -bind-to", 1},
                                 {"--host -host --H -H", 1},
                                 {"--hostfile -hostfile --machinefile -machinefile", 1},
                                 {"--cpu-set -cpu-set --cpu-list -cpu-list", 1},
                                 {"--wdir -wdir --wd -wd", 1},
                                 {"-x", 1},
                                 {"--report-bindings -report-bindings", 0},
                                 {"--oversubscribe -oversubscribe", 0},
                                 {"--allow-run-as-root -allow-run-as-root", 0}}};
  const char* const example = "lines such as 'rank 0=localhost slot=0,4'";
  return {
      {"openmpi", "mpirun of Open MPI 4: a rank file of physical numbers", example, kAbsolute, false, false,
       emit_openmpi, program, parse_openmpi},
      {"openmpi5", "mpirun of Open MPI 5: a rank file of logical numbers", example,
       "relative to the control group, core by core", false, false, emit_openmpi5, program, parse_openmpi5},
  };
}

}  // namespace mm::place::syntax
