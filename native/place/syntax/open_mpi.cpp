#include "form.hpp"

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

// `rank N=HOST slot=LIST …`, each rank once, all on one host. Absolute numbers.
std::vector<std::vector<int>> parse_rank_file(const Reader& read, const std::string& text) {
  std::string bare;
  for (const std::string& text_line : split(text, '\n')) bare += text_line.substr(0, text_line.find('#')) + "\n";
  const Words words = shell_words(join(shell_words(bare), " "));
  std::map<int, std::vector<int>> ranks;
  std::string host;
  auto at = std::find(words.begin(), words.end(), "rank");
  if (at == words.end()) read.refuse(words.empty() ? "" : words[0]);
  for (; at != words.end() && *at != ">"; at += 3) {
    if (*at != "rank" || words.end() - at < 3) read.refuse(*at);
    const std::string &where = at[1], &slot = at[2];
    const std::size_t equals = where.find('=');
    if (equals == std::string::npos || !slot.starts_with("slot=")) read.refuse(where + " " + slot);
    if (const std::string h = where.substr(equals + 1); host.empty() && !h.empty())
      host = h;
    else if (h != host || h.empty())
      throw UsageError(read.form, "found " + quote(where), "one host, since a layout covers one node");
    std::vector<int> numbers;
    for (const std::string& word : split(slot.substr(5), ',')) {
      const std::vector<int> more = read.range(word);
      if (word.find(':') != std::string::npos) read.refuse(word);
      numbers.insert(numbers.end(), more.begin(), more.end());
    }
    if (!ranks.emplace(read.number(where.substr(0, equals)), ascending(numbers)).second) read.refuse(where);
  }
  std::vector<std::vector<int>> parts;
  for (const auto& [rank, numbers] : ranks) {
    if (rank != static_cast<int>(parts.size()))
      throw UsageError(read.form, "rank " + std::to_string(parts.size()) + " is missing", "all ranks from 0");
    parts.push_back(numbers);
  }
  return parts;
}

Form emit_openmpi(const Machine& machine, const Layout& layout, const Memory& memory) {
  Form form{{"mpirun", "-np", count(layout), "--use-hwthread-cpus", "--mca", "rmaps_rank_file_physical", "1",
             "--rankfile", "{rankfile}"},
            {},
            {{"rankfile", rank_file(layout.parts)}}};
  return with_numactl("openmpi", form, machine, layout, memory);
}

Layout parse_openmpi(const Reader& read, const std::string& text) {
  Layout layout{parse_rank_file(read, text)};
  for (const auto& part : layout.parts)
    for (const int cpu : part) read.known(cpu, "slot=" + cpu_list(part));
  return layout;
}

Form emit_openmpi5(const Machine& machine, const Layout& layout, const Memory& memory) {
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
            "CPUs " + cpu_list(counted(machine)));
      numbers.push_back(number[cpu]);
    }
    numbers = ascending(numbers);
  }
  Form form{{"mpirun", "-np", count(layout)}, {}, {{"rankfile", rank_file(parts)}}};
  // Version 5 refuses ranks that share a CPU unless that is allowed explicitly.
  std::vector<int> once;
  for (const auto& part : layout.parts) once.insert(once.end(), part.begin(), part.end());
  if (ascending(once).size() < once.size())
    form.words.insert(form.words.end(), {"--bind-to", "hwthread:overload-allowed"});
  form.words.insert(form.words.end(), {"--map-by", "rankfile:file={rankfile}:hwtcpus"});
  return with_numactl("openmpi5", form, machine, layout, memory);
}

Layout parse_openmpi5(const Reader& read, const std::string& text) {
  const std::vector<Cpu> order = logical(read.machine);
  Layout layout{parse_rank_file(read, text)};
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
  return layout;
}

}  // namespace

std::vector<Syntax> open_mpi() {
  return {
      {"openmpi", "mpirun of Open MPI 4: a rank file of physical numbers", "lines such as 'rank 0=localhost slot=0,4'",
       kAbsolute, false, false, emit_openmpi, parse_openmpi},
      {"openmpi5", "mpirun of Open MPI 5: a rank file of logical numbers", "lines such as 'rank 0=localhost slot=0,4'",
       "relative to the control group, core by core", false, false, emit_openmpi5, parse_openmpi5},
  };
}

}  // namespace mm::place::syntax
