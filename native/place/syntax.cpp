#include "syntax.hpp"

#include <algorithm>
#include <cctype>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <set>

#include "arguments.hpp"
#include "bind.hpp"
#include "command.hpp"
#include "error.hpp"
#include "hwloc_handle.hpp"
#include "json.hpp"
#include "options.hpp"

namespace mm::place {
namespace {

constexpr int kHighest = 1 << 20;              // of CPU numbers, as parse_cpu_list
constexpr std::size_t kMostNumbers = 1 << 20;  // that a text may expand to
constexpr std::size_t kMostText = 1 << 20;     // bytes of standard input

using Words = std::vector<std::string>;

std::string join(const Words& words, const std::string& by) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) text += (i ? by : "") + words[i];
  return text;
}

// Words as a shell cuts them: quotes and backslashes go.
Words shell_words(const std::string& text) {
  Words words;
  std::string word;
  bool open = false;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
      open = true;
    } else if (c == '\\' && i + 1 < text.size()) {
      word += text[++i];
      open = true;
    } else if (std::isspace(static_cast<unsigned char>(c))) {
      if (open) words.push_back(word);
      word.clear();
      open = false;
    } else {
      word += c;
      open = true;
    }
  }
  if (open) words.push_back(word);
  return words;
}

std::string shell_quoted(const std::string& word) {
  if (!word.empty() &&
      word.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-") ==
          std::string::npos)
    return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// What follows one of `keys` in a pasted line, be it in the same word or in the next; else the whole text.
std::string after(const std::string& text, std::initializer_list<const char*> keys) {
  const Words words = shell_words(text);
  for (const char* key : keys)
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (!words[i].starts_with(key)) continue;
      if (std::string rest = words[i].substr(std::string(key).size()); !rest.empty()) return rest;
      if (i + 1 < words.size()) return words[i + 1];
    }
  return join(words, " ");
}

// Reads numbers of CPUs; every error names the form, the word and what it should look like.
struct Reader {
  const Machine& machine;
  std::string form, example;

  [[noreturn]] void wrong(const std::string& word) const { throw UsageError(form, "found " + quote(word), example); }

  // `text` alone, or as a piece of `word`.
  int number(const std::string& text, const std::string& word) const {
    if (text.empty() || text.size() > 7 || text.find_first_not_of("0123456789") != std::string::npos) wrong(word);
    const int n = std::stoi(text);
    if (n > kHighest) wrong(word);
    return n;
  }
  int number(const std::string& word) const { return number(word, word); }

  int known(int cpu, const std::string& word) const {
    const auto at =
        std::lower_bound(machine.cpus.begin(), machine.cpus.end(), cpu, [](const Cpu& c, int id) { return c.id < id; });
    if (at == machine.cpus.end() || at->id != cpu) {
      std::vector<int> online;
      for (const Cpu& c : machine.cpus) online.push_back(c.id);
      throw UsageError(form, "found CPU " + std::to_string(cpu) + " in " + quote(word), "CPUs " + cpu_list(online));
    }
    return cpu;
  }

  // A, A-B, A-B:S (every S-th): in the order written.
  std::vector<int> range(const std::string& word) const {
    const std::size_t dash = word.find('-'), colon = word.find(':');
    if (dash == std::string::npos) return {number(word)};
    if (colon < dash) wrong(word);
    const int low = number(word.substr(0, dash), word);
    const int high = number(word.substr(dash + 1, colon == std::string::npos ? colon : colon - dash - 1), word);
    const int step = colon == std::string::npos ? 1 : number(word.substr(colon + 1), word);
    if (high < low || step < 1) wrong(word);
    std::vector<int> numbers;
    for (int i = low; i <= high; i += step) numbers.push_back(i);
    return numbers;
  }

  // Ranges with `by` between them, in the order written.
  std::vector<int> list(const std::string& text, char by = ',') const {
    std::vector<int> all;
    for (const std::string& word : split(text, by)) {
      for (const int n : range(word)) all.push_back(known(n, word));
      if (all.size() > kMostNumbers) wrong(word);
    }
    return all;
  }

  // Hexadecimal, of any width: 0x11, 11, 0x1,00000000 and the kernel's 1,00000000 (groups of 32 bits).
  std::vector<int> mask(const std::string& word) const {
    std::string digits;
    for (std::string group : split(word, ',')) {
      if (group.starts_with("0x") || group.starts_with("0X")) group = group.substr(2);
      const bool first = digits.empty();
      if (group.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos || (first && group.empty()) ||
          (!first && group.size() > 8))
        wrong(word);
      digits += (first ? "" : std::string(8 - group.size(), '0')) + group;
    }
    if (digits.size() > kHighest / 4) wrong(word.substr(0, 40) + "…");
    std::vector<int> cpus;
    for (std::size_t i = 0; i < digits.size(); ++i) {
      const int bits = std::stoi(std::string(1, digits[digits.size() - 1 - i]), nullptr, 16);
      for (int b = 0; b < 4; ++b)
        if (bits >> b & 1) cpus.push_back(known(static_cast<int>(4 * i) + b, word));
    }
    if (cpus.empty()) wrong(word);
    return cpus;
  }

  // Takes the repetition off the end of a word: `0*4` is 0 four times.
  std::size_t repeats(std::string& word, char by) const {
    const std::size_t at = word.find(by);
    if (at == std::string::npos) return 1;
    const int n = number(word.substr(at + 1));
    if (n < 1) wrong(word);
    word.resize(at);
    return static_cast<std::size_t>(n);
  }
};

std::vector<int> ascending(std::vector<int> cpus) {
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

void add(Layout& layout, const std::vector<int>& part, std::size_t times = 1) {
  if ((layout.parts.size() + times) * part.size() > kMostNumbers)
    throw UsageError("layout", "too many CPUs in all parts", "at most 1048576");
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

// CPUs in hwloc's order, core by core.
std::vector<Cpu> in_order(const Machine& machine, const std::vector<int>& among) {
  std::vector<Cpu> cpus;
  for (const Cpu& cpu : machine.cpus)
    if (std::binary_search(among.begin(), among.end(), cpu.id)) cpus.push_back(cpu);
  std::stable_sort(cpus.begin(), cpus.end(),
                   [](const Cpu& a, const Cpu& b) { return a.core != b.core ? a.core < b.core : a.smt < b.smt; });
  return cpus;
}

// What logical numbers count, of hwloc and of launchers built upon it: the CPUs of the control group, whatever the
// affinity of who starts them. (Open MPI 5.0 under `taskset -c 1` still calls CPU 0 number 0, and binds to it.)
std::vector<int> counted(const Machine& machine) {
  if (machine.origin != "host") return machine.allowed;
  std::vector<int> group;
  const hwloc_const_cpuset_t set = hwloc_topology_get_allowed_cpuset(hwloc_handle());
  for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu)) group.push_back(cpu);
  return group;
}
std::vector<Cpu> logical(const Machine& machine) { return in_order(machine, counted(machine)); }

[[noreturn]] void no_weights(const std::string& form) {
  throw UsageError(form, "has no words for the memory policy 'weighted'", "meshmark run --memory weighted=…");
}

/// What numactl takes for a memory policy; empty for the default.
Words numactl_memory(const std::string& form, const Machine& machine, const Layout& layout, const Memory& memory) {
  if (memory.policy == "default") return {};
  if (memory.policy == "local") return {"--localalloc"};
  const std::vector<int> nodes = nodes_meant(machine, memory, layout.cpus());
  const std::string list = cpu_list(nodes);
  if (memory.policy == "bind") return {"--membind=" + list};
  if (memory.policy == "preferred") return {(nodes.size() == 1 ? "--preferred=" : "--preferred-many=") + list};
  if (memory.policy == "interleave") return {"--interleave=" + list};
  no_weights(form);
}

Form with_numactl(const std::string& form, Form made, const Machine& machine, const Layout& layout,
                  const Memory& memory) {
  const Words words = numactl_memory(form, machine, layout, memory);
  if (words.empty()) return made;
  made.words.emplace_back("numactl");
  made.words.insert(made.words.end(), words.begin(), words.end());
  return made;
}

std::string rank_file(const std::vector<std::vector<int>>& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += "rank " + std::to_string(i) + "=localhost slot=" + cpu_list(parts[i]) + "\n";
  return text;
}

// `rank N=HOST slot=LIST …`, each rank once, all of one host. Numbers as they are.
std::vector<std::vector<int>> parse_rank_file(const Reader& read, const std::string& text) {
  std::string bare;
  for (const std::string& text_line : split(text, '\n')) bare += text_line.substr(0, text_line.find('#')) + "\n";
  const Words words = shell_words(join(shell_words(bare), " "));
  std::map<int, std::vector<int>> ranks;
  std::string host;
  auto at = std::find(words.begin(), words.end(), "rank");
  if (at == words.end()) read.wrong(words.empty() ? "" : words[0]);
  for (; at != words.end() && *at != ">"; at += 3) {
    if (*at != "rank" || words.end() - at < 3) read.wrong(*at);
    const std::string &where = at[1], &slot = at[2];
    const std::size_t equals = where.find('=');
    if (equals == std::string::npos || !slot.starts_with("slot=")) read.wrong(where + " " + slot);
    if (const std::string h = where.substr(equals + 1); host.empty() && !h.empty())
      host = h;
    else if (h != host || h.empty())
      throw UsageError(read.form, "found " + quote(where), "one host: a layout is of one node");
    std::vector<int> numbers;
    for (const std::string& word : split(slot.substr(5), ',')) {
      const std::vector<int> more = read.range(word);
      if (word.find(':') != std::string::npos) read.wrong(word);
      numbers.insert(numbers.end(), more.begin(), more.end());
    }
    if (!ranks.emplace(read.number(where.substr(0, equals)), ascending(numbers)).second) read.wrong(where);
  }
  std::vector<std::vector<int>> parts;
  for (const auto& [rank, numbers] : ranks) {
    if (rank != static_cast<int>(parts.size()))
      throw UsageError(read.form, "rank " + std::to_string(parts.size()) + " is missing", "all ranks from 0");
    parts.push_back(numbers);
  }
  return parts;
}

std::string count(const Layout& layout) { return std::to_string(layout.parts.size()); }

// One entry a form.
struct Syntax {
  const char *name, *help, *example;
  const char* numbers;  ///< what its numbers are
  bool one_mask;        ///< all parts share one
  bool one_cpu;         ///< a part is one CPU
  std::function<Form(const Machine&, const Layout&, const Memory&)> emit;
  std::function<Layout(const Reader&, const std::string&)> parse;
};

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
        throw UsageError("openmpi5",
                         "counts only the CPUs of the control group, and CPU " + std::to_string(cpu) + " is none",
                         "CPUs " + cpu_list(counted(machine)));
      numbers.push_back(number[cpu]);
    }
    numbers = ascending(numbers);
  }
  Form form{{"mpirun", "-np", count(layout)}, {}, {{"rankfile", rank_file(parts)}}};
  // Version 5 refuses ranks that share a CPU unless it is told that this is meant.
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
            "0-" + std::to_string(order.size() - 1) + ", counting the CPUs of the control group core by core");
      n = order[static_cast<std::size_t>(n)].id;
    }
    part = ascending(part);
  }
  return layout;
}

Form emit_mpich(const Machine& machine, const Layout& layout, const Memory& memory) {
  Words sets;
  for (const auto& part : layout.parts) sets.push_back(plain(part, "+"));
  return with_numactl("mpich", {{"mpiexec", "-n", count(layout), "-bind-to", "user:" + join(sets, ",")}, {}, {}},
                      machine, layout, memory);
}

Layout parse_mpich(const Reader& read, const std::string& text) {
  Layout layout;
  for (std::string word : split(after(text, {"user:"}), ',')) {
    const std::size_t times = read.repeats(word, 'x');
    add(layout, read.list(word, '+'), times);
  }
  return layout;
}

Form emit_slurm(const Machine& machine, const Layout& layout, const Memory& memory, bool masks) {
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
    Words nodes;  // each part its own, unless told
    for (const auto& part : layout.parts) nodes.push_back(hex(nodes_meant(machine, memory, part)));
    if (!memory.nodes.empty()) nodes.resize(1);  // Slurm begins the list anew for further tasks
    form.words.push_back("--mem-bind=mask_mem:" + join(nodes, ","));
  } else {
    return with_numactl("slurm", form, machine, layout, memory);
  }
  return form;
}

Layout parse_slurm(const Reader& read, const std::string& text) {
  std::string value = after(text, {"--cpu-bind=", "--cpu-bind", "--cpu_bind=", "SLURM_CPU_BIND="});
  for (const char* talk : {"verbose,", "quiet,"})
    if (value.starts_with(talk)) value = value.substr(std::string(talk).size());
  const bool map = value.starts_with("map_cpu:");
  if (!map && !value.starts_with("mask_cpu:")) read.wrong(value);
  Layout layout;
  for (std::string word : split(value.substr(value.find(':') + 1), ',')) {
    const std::size_t times = read.repeats(word, '*');
    if (!map) {
      add(layout, read.mask(word), times);
    } else if (word.starts_with("0x")) {
      if (word.size() < 3 || word.size() > 7 ||
          word.find_first_not_of("0123456789abcdefABCDEF", 2) != std::string::npos)
        read.wrong(word);
      add(layout, {read.known(std::stoi(word, nullptr, 16), word)}, times);
    } else {
      add(layout, {read.known(read.number(word), word)}, times);
    }
  }
  return layout;
}

Form emit_lsf(const Machine& machine, const Layout& layout, const Memory& memory) {
  return with_numactl(
      "lsf",
      {{"bsub", "-n", std::to_string(layout.parts.size())}, {{"LSB_USER_BIND_CPU_LIST", cpu_list(layout.cpus())}}, {}},
      machine, layout, memory);
}

Layout parse_lsf(const Reader& read, const std::string& text) {
  std::string value = after(text, {"LSB_USER_BIND_CPU_LIST=", "LSB_BIND_CPU_LIST="});
  std::replace(value.begin(), value.end(), ' ', ',');
  return {{ascending(read.list(value))}};
}

Form emit_flux(const Machine& machine, const Layout& layout, const Memory& memory) {
  return with_numactl("flux",
                      {{"flux", "run", "-n", count(layout), "-o", "cpu-affinity=map:" + lists(layout, ";")}, {}, {}},
                      machine, layout, memory);
}

Layout parse_flux(const Reader& read, const std::string& text) {
  std::string value = after(text, {"cpu-affinity=", "-ocpu-affinity="});
  for (const char* prefix : {"cpu-affinity=", "verbose,", "dry-run,", "map:"})
    if (value.starts_with(prefix)) value = value.substr(std::string(prefix).size());
  Layout layout;
  for (const std::string& word : split(value, ';'))
    add(layout, word.starts_with("0x") ? read.mask(word) : read.list(word));
  return layout;
}

Form threads(const std::string& form, const Machine& machine, const Layout& layout, const Memory& memory,
             std::vector<std::pair<std::string, std::string>> environment) {
  environment.emplace_back("OMP_NUM_THREADS", count(layout));
  return with_numactl(form, {{}, std::move(environment), {}}, machine, layout, memory);
}

Form emit_places(const Machine& machine, const Layout& layout, const Memory& memory) {
  Words places;
  for (const auto& part : layout.parts) places.push_back("{" + plain(part, ",") + "}");
  // `close`, not `true`: with as many threads as places it says that thread i gets place i.
  return threads("omp-places", machine, layout, memory,
                 {{"OMP_PLACES", join(places, ",")}, {"OMP_PROC_BIND", "close"}});
}

// {N[:LENGTH[:STRIDE]],…}[:LENGTH[:STRIDE]],… or threads, cores, ll_caches, numa_domains, sockets with an optional (N).
Layout parse_places(const Reader& read, const std::string& text) {
  std::string value = after(text, {"OMP_PLACES="});
  std::erase_if(value, [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; });
  if (!value.empty() && std::isalpha(static_cast<unsigned char>(value[0]))) {
    const std::size_t bracket = value.find('(');
    const std::string level = value.substr(0, bracket);
    std::size_t most = kMostNumbers;
    if (bracket != std::string::npos) {
      if (value.back() != ')') read.wrong(value);
      most = static_cast<std::size_t>(read.number(value.substr(bracket + 1, value.size() - bracket - 2)));
    }
    std::map<int, std::vector<int>> places;
    for (const Cpu& cpu : in_order(read.machine, read.machine.allowed)) {
      const int key = level == "threads"        ? static_cast<int>(places.size())
                      : level == "cores"        ? cpu.core
                      : level == "ll_caches"    ? cpu.l3
                      : level == "numa_domains" ? cpu.node
                      : level == "sockets"      ? cpu.package
                                                : -1;
      if (key < 0) read.wrong(value);
      places[key].push_back(cpu.id);
    }
    Layout layout;
    for (const auto& [key, cpus] : places)
      if (layout.parts.size() < most) add(layout, cpus);
    if (layout.parts.empty()) read.wrong(value);
    return layout;
  }
  std::size_t at = 0;
  const auto number = [&](bool negative) {
    const std::size_t from = at;
    if (negative && at < value.size() && value[at] == '-') ++at;
    while (at < value.size() && std::isdigit(static_cast<unsigned char>(value[at]))) ++at;
    const std::string word = value.substr(from, at - from);
    if (word.empty()) read.wrong(value.substr(from));
    return word[0] == '-' ? -read.number(word.substr(1)) : read.number(word);
  };
  const auto interval = [&] {  // [:LENGTH[:STRIDE]]
    std::pair<int, int> found{1, 1};
    if (at < value.size() && value[at] == ':') {
      ++at;
      found.first = number(false);
      if (at < value.size() && value[at] == ':') {
        ++at;
        found.second = number(true);
      }
    }
    return found;
  };
  const auto moved = [](long long from, long long steps, long long stride) {
    return static_cast<int>(std::clamp<long long>(from + steps * stride, -1, kHighest));
  };
  Layout layout;
  for (;;) {
    const std::size_t from = at;
    if (at >= value.size() || value[at] != '{') read.wrong(value.substr(from));
    std::vector<int> place;
    do {
      ++at;
      const int start = number(false);
      const auto [length, stride] = interval();
      for (int i = 0; i < length; ++i) place.push_back(moved(start, i, stride));
      if (place.size() > kMostNumbers) read.wrong(value.substr(from, 40));
    } while (at < value.size() && value[at] == ',');
    if (at >= value.size() || value[at] != '}') read.wrong(value.substr(from));
    ++at;
    place = ascending(place);
    const auto [length, stride] = interval();
    const std::string word = value.substr(from, at - from);
    for (int i = 0; i < length; ++i) {
      std::vector<int> part;
      for (const int cpu : place) part.push_back(read.known(moved(cpu, i, stride), word));
      if (part.empty()) read.wrong(word);
      add(layout, part);
    }
    if (at == value.size()) return layout;
    if (value[at++] != ',') read.wrong(value.substr(from));
  }
}

Form emit_gomp(const Machine& machine, const Layout& layout, const Memory& memory) {
  Words cpus;
  for (const auto& part : layout.parts) cpus.push_back(std::to_string(part[0]));
  return threads("gomp", machine, layout, memory, {{"GOMP_CPU_AFFINITY", join(cpus, " ")}});
}

Layout parse_gomp(const Reader& read, const std::string& text) {
  std::string value = after(text, {"GOMP_CPU_AFFINITY="});
  std::replace(value.begin(), value.end(), ' ', ',');
  return singles(read.list(value));
}

Form emit_kmp(const Machine& machine, const Layout& layout, const Memory& memory) {
  Words items;
  for (const auto& part : layout.parts)
    items.push_back(part.size() == 1 ? std::to_string(part[0]) : "{" + plain(part, ",") + "}");
  return threads("kmp", machine, layout, memory,
                 {{"KMP_AFFINITY", "granularity=fine,proclist=[" + join(items, ",") + "],explicit"}});
}

Layout parse_kmp(const Reader& read, const std::string& text) {
  const std::string value = after(text, {"KMP_AFFINITY="});
  const std::size_t open = value.find('['), close = value.rfind(']');
  if (open == std::string::npos || close == std::string::npos || close < open || value.find("proclist=") + 9 != open)
    read.wrong(value);
  Layout layout;
  const std::string inner = value.substr(open + 1, close - open - 1);
  for (std::size_t at = 0; at <= inner.size();) {
    if (at < inner.size() && inner[at] == '{') {
      const std::size_t end = inner.find('}', at);
      if (end == std::string::npos || (end + 1 < inner.size() && inner[end + 1] != ',')) read.wrong(inner.substr(at));
      add(layout, read.list(inner.substr(at + 1, end - at - 1)));
      at = end + 2;
    } else {
      const std::size_t end = std::min(inner.find(',', at), inner.size());
      for (const int cpu : read.list(inner.substr(at, end - at))) add(layout, {cpu});
      at = end + 1;
    }
  }
  return layout;
}

// Ranges as hwloc's locations.
Words locations(const char* object, const std::vector<int>& numbers) {
  Words words;
  for (const std::string& range : split(cpu_list(numbers), ',')) words.push_back(std::string(object) + ":" + range);
  return words;
}

Form emit_hwloc(const Machine& machine, const Layout& layout, const Memory& memory) {
  Words words{"hwloc-bind", "--physical"};
  // Without --strict hwloc asks the kernel for "preferred" where it is told to bind.
  if (memory.policy == "bind") words.emplace_back("--strict");
  words.emplace_back("--cpubind");
  for (const std::string& word : locations("pu", layout.parts[0])) words.push_back(word);
  if (memory.policy == "weighted") no_weights("hwloc");
  if (memory.policy != "default") {
    words.emplace_back("--membind");
    for (const std::string& word : locations("node", nodes_meant(machine, memory, layout.cpus())))
      words.push_back(word);
    words.emplace_back("--mempolicy");
    words.emplace_back(memory.policy == "local" ? "firsttouch" : memory.policy == "interleave" ? "interleave" : "bind");
  }
  words.emplace_back("--");
  return {words, {}, {}};
}

// Locations of hwloc(7): masks, and tuples such as pu:0-3 or package:1.core:odd; logical unless --physical is there.
Layout parse_hwloc(const Reader& read, const std::string& text) {
  const Words words = shell_words(text);
  const bool physical =
      std::any_of(words.begin(), words.end(), [](const std::string& w) { return w == "--physical" || w == "-p"; });
  const std::vector<Cpu> all = logical(read.machine);
  const auto key = [](const Cpu& cpu, const std::string& type) {
    return type == "pu"                                             ? cpu.id
           : type == "core"                                         ? cpu.core
           : type == "l3" || type == "l3cache"                      ? cpu.l3
           : type == "package" || type == "socket"                  ? cpu.package
           : type == "numanode" || type == "numa" || type == "node" ? cpu.node
           : type == "machine"                                      ? 0
                                                                    : -1;
  };
  const auto tuple = [&](const std::vector<Cpu>& among, const std::string& word) {
    const std::size_t colon = word.find(':');
    if (colon == std::string::npos) read.wrong(word);
    const std::string type = word.substr(0, colon), index = word.substr(colon + 1);
    std::vector<int> objects;  // keys, in hwloc's order
    for (const Cpu& cpu : among) {
      const int k = key(cpu, type);
      if (k < 0) read.wrong(word);
      if (std::find(objects.begin(), objects.end(), k) == objects.end()) objects.push_back(k);
    }
    const bool by_os = physical && (type == "pu" || type.starts_with("n"));
    if (physical && !by_os)
      throw UsageError("hwloc", "found " + quote(word) + " with --physical",
                       "pu or numanode: others have no number of their own");
    const std::size_t dash = index.find('-'), wrap = index.find(':');
    const int last = by_os ? *std::max_element(objects.begin(), objects.end()) : static_cast<int>(objects.size()) - 1;
    std::set<int> chosen;
    if (index == "all" || index == "odd" || index == "even") {
      for (int i = 0; i <= last; ++i)
        if (index == "all" || i % 2 == (index == "odd")) chosen.insert(i);
    } else if (wrap != std::string::npos) {
      const int first = read.number(index.substr(0, wrap)), n = read.number(index.substr(wrap + 1));
      if (first > last || n < 1) read.wrong(word);
      for (int i = 0; i < std::min(n, last + 1); ++i) chosen.insert((first + i) % (last + 1));
    } else if (dash != std::string::npos && dash + 1 == index.size()) {
      for (int i = read.number(index.substr(0, dash)); i <= last; ++i) chosen.insert(i);
    } else {
      for (const int i : read.range(index)) {
        if (i > last) read.wrong(word);
        chosen.insert(i);
      }
    }
    std::vector<Cpu> found;
    for (const Cpu& cpu : among) {
      const int k = key(cpu, type);
      const int place = by_os ? k : static_cast<int>(std::find(objects.begin(), objects.end(), k) - objects.begin());
      if (chosen.contains(place)) found.push_back(cpu);
    }
    if (found.empty()) read.wrong(word);
    return found;
  };
  std::vector<int> cpus;
  bool memory = false;
  for (std::size_t i = !words.empty() && words[0].ends_with("hwloc-bind") ? 1 : 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") break;
    if (word == "--cpubind" || word == "--membind") {
      memory = word == "--membind";
    } else if (word == "--mempolicy") {
      ++i;
    } else if (word == "--physical" || word == "-p" || word == "--logical" || word == "-l" || word == "--strict" ||
               memory) {
    } else if (word.starts_with("0x")) {
      for (const int cpu : read.mask(word)) cpus.push_back(cpu);
    } else {
      std::vector<Cpu> found = all;
      if (word != "all" && word != "root")
        for (const std::string& step : split(word, '.')) found = tuple(found, step);
      for (const Cpu& cpu : found) cpus.push_back(cpu.id);
    }
  }
  if (cpus.empty()) read.wrong(text);
  return {{ascending(cpus)}};
}

// likwid takes numbers as they are, unless it may not use all CPUs: then as places among those that it may, the first
// threads of all cores first (likwid 5.2, cpustring.c).
std::vector<int> likwid_order(const Machine& machine) {
  std::vector<Cpu> cpus = in_order(machine, machine.allowed);
  std::stable_sort(cpus.begin(), cpus.end(), [](const Cpu& a, const Cpu& b) { return a.smt < b.smt; });
  std::vector<int> order;
  for (const Cpu& cpu : cpus) order.push_back(cpu.id);
  return order;
}
bool restricted(const Machine& machine) { return machine.allowed.size() < machine.cpus.size(); }

Form emit_likwid(const Machine& machine, const Layout& layout, const Memory& memory) {
  const std::vector<int> order = likwid_order(machine);
  std::vector<int> numbers;
  for (const auto& part : layout.parts) {
    const auto at = std::find(order.begin(), order.end(), part[0]);
    if (at == order.end())
      throw UsageError("likwid", "counts only allowed CPUs, and CPU " + std::to_string(part[0]) + " is none",
                       "CPUs " + cpu_list(machine.allowed));
    numbers.push_back(restricted(machine) ? static_cast<int>(at - order.begin()) : part[0]);
  }
  return with_numactl("likwid", {{"likwid-pin", "-c", plain(numbers, ",")}, {}, {}}, machine, layout, memory);
}

Layout parse_likwid(const Reader& read, const std::string& text) {
  const std::string value = after(text, {"-c", "-C"});
  if (!restricted(read.machine)) return singles(read.list(value));
  const std::vector<int> order = likwid_order(read.machine);
  Layout layout;
  for (const std::string& word : split(value, ','))
    for (const int n : read.range(word)) {
      if (static_cast<std::size_t>(n) >= order.size())
        throw UsageError("likwid", "found number " + std::to_string(n) + " in " + quote(word),
                         "0-" + std::to_string(order.size() - 1) + ", counting the allowed CPUs");
      add(layout, {order[static_cast<std::size_t>(n)]});
    }
  return layout;
}

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
    if (left.empty()) read.wrong(value);
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

Form emit_cpuset(const Machine& machine, const Layout& layout, const Memory& memory) {
  std::vector<int> nodes;
  for (const Node& node : machine.nodes)
    if (node.bytes > 0) nodes.push_back(node.id);
  const bool bind = memory.policy == "bind";
  if (bind) nodes = nodes_meant(machine, memory, layout.cpus());
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

Form emit_parts(const Machine& machine, const Layout& layout, const Memory& memory) {
  (void)machine;
  if (memory.policy != "default" || memory.pages != "default")
    throw UsageError("parts", "has no words for memory", "any other form");
  return {{lists(layout, ";")}, {}, {}};
}

Layout parse_parts(const Reader& read, const std::string& text) {
  Layout layout;
  for (const std::string& word : split(after(text, {}), ';')) add(layout, read.list(word));
  return layout;
}

const std::vector<Syntax>& syntaxes() {
  using namespace std::placeholders;
  constexpr const char *kAbsolute = "absolute", *kRelative = "relative to the control group, core by core",
                       *kLikwid = "absolute; where not all CPUs are allowed, relative to those that are";
  static const std::vector<Syntax> all = {
      {"openmpi", "mpirun of Open MPI 4: a rank file of physical numbers", "lines such as 'rank 0=localhost slot=0,4'",
       kAbsolute, false, false, emit_openmpi, parse_openmpi},
      {"openmpi5", "mpirun of Open MPI 5: a rank file of logical numbers", "lines such as 'rank 0=localhost slot=0,4'",
       kRelative, false, false, emit_openmpi5, parse_openmpi5},
      {"mpich", "mpiexec of MPICH (hydra): -bind-to user:", "'user:0+1,2+3', with 0-3 and 0x4", kAbsolute, false, false,
       emit_mpich, parse_mpich},
      {"slurm", "srun: map_cpu for single CPUs, else mask_cpu", "'map_cpu:0,1' or 'mask_cpu:0x11,0x22', with 0*4",
       kAbsolute, false, false, [](auto& m, auto& l, auto& mem) { return emit_slurm(m, l, mem, false); }, parse_slurm},
      {"slurm-mask", "srun: mask_cpu", "'map_cpu:0,1' or 'mask_cpu:0x11,0x22', with 0*4", kAbsolute, false, false,
       [](auto& m, auto& l, auto& mem) { return emit_slurm(m, l, mem, true); }, parse_slurm},
      {"lsf", "bsub, where the site has BIND_JOB=USER_CPU_LIST", "a list such as 1,2,5,7-9", kAbsolute, true, false,
       emit_lsf, parse_lsf},
      {"flux", "flux run: -o cpu-affinity=map:", "'map:0,4;1,5' or masks 'map:0x11;0x22'", kAbsolute, false, false,
       emit_flux, parse_flux},
      {"omp-places", "OMP_PLACES of every OpenMP", "'{0,4},{1,5}', '{0:2}:4:2' or 'cores(4)'", kAbsolute, false, false,
       emit_places, parse_places},
      {"gomp", "GOMP_CPU_AFFINITY of GNU's OpenMP", "'0 4 1-3 8-14:2'", kAbsolute, false, true, emit_gomp, parse_gomp},
      {"kmp", "KMP_AFFINITY of Intel's and LLVM's OpenMP", "'granularity=fine,proclist=[0,{4,5},8-14:2],explicit'",
       kAbsolute, false, false, emit_kmp, parse_kmp},
      {"hwloc", "hwloc-bind", "'--physical pu:0-3 pu:8', 'package:0.core:1' or '0x11'", kAbsolute, true, false,
       emit_hwloc, parse_hwloc},
      {"likwid", "likwid-pin", "'-c 0,4,9-11'", kLikwid, false, true, emit_likwid, parse_likwid},
      {"numactl", "numactl", "'--physcpubind=0-3,8', '+0-3' or '!0'", kAbsolute, true, false, emit_numactl,
       parse_numactl},
      {"taskset", "taskset", "'-c 0-6:2,8' or '0x11'", kAbsolute, true, false, emit_taskset, parse_taskset},
      {"cpuset", "files of a control group", "a list such as 0-3,8", kAbsolute, true, false, emit_cpuset, parse_cpuset},
      {"parts", "Meshmark's own", "'0,4;1,5'", kAbsolute, false, false, emit_parts, parse_parts},
  };
  return all;
}

const Syntax& syntax(const std::string& form) {
  Words names;
  for (const Syntax& s : syntaxes()) {
    if (form == s.name) return s;
    names.emplace_back(s.name);
  }
  throw UsageError("form", "found " + quote(form), join(names, ", "));
}

std::string names_of(bool (*can)(const Syntax&)) {
  Words names;
  for (const Syntax& s : syntaxes())
    if (can(s)) names.emplace_back(s.name);
  return join(names, ", ");
}

// What the page size asks for beside the words: glibc's tunable, which every child inherits.
void add_pages(const std::string& form, Form& made, const Memory& memory) {
  if (memory.pages == "default") return;
  const std::string value = memory.pages == "thp"    ? "1"
                            : memory.pages == "2MiB" ? "2097152"
                            : memory.pages == "1GiB" ? "1073741824"
                                                     : "";
  if (value.empty())
    throw UsageError(form, "has no words for pages of " + memory.pages, "meshmark run --pages " + memory.pages);
  made.environment.emplace_back("GLIBC_TUNABLES", "glibc.malloc.hugetlb=" + value);
}

}  // namespace

const std::vector<std::pair<std::string, std::string>>& forms() {
  static const auto all = [] {
    std::vector<std::pair<std::string, std::string>> list;
    for (const Syntax& s : syntaxes()) list.emplace_back(s.name, s.help);
    return list;
  }();
  return all;
}

bool one_mask_only(const std::string& form) { return syntax(form).one_mask; }

Form emit(const std::string& form, const Machine& described, const Layout& layout, const Memory& memory) {
  const Syntax& s = syntax(form);
  Machine machine = described;
  // A description without any sizes (`pack:2 [numa] core:4`) leaves them open: its nodes are not empty.
  if (std::all_of(machine.nodes.begin(), machine.nodes.end(), [](const Node& n) { return n.bytes == 0; }))
    for (Node& node : machine.nodes) node.bytes = 1;
  if (layout.parts.empty()) throw UsageError(form, "the layout has no parts", "at least one");
  const Reader read{machine, form, s.example};
  Layout sorted = layout;
  for (auto& part : sorted.parts) part = ascending(part);
  for (const auto& part : sorted.parts) {
    if (part.empty()) throw UsageError(form, "a part of the layout has no CPU", "at least one");
    for (const int cpu : part) read.known(cpu, cpu_list(part));
    if (s.one_cpu && part.size() > 1)
      throw UsageError(form, "takes one CPU a part, and one has " + cpu_list(part), "omp-places, kmp");
    if (s.one_mask && part != sorted.parts[0])
      throw UsageError(form, "has one mask for all parts, and these differ",
                       names_of([](const Syntax& t) { return !t.one_mask && !t.one_cpu; }));
  }
  Form made = s.emit(machine, sorted, memory);
  add_pages(form, made, memory);
  return made;
}

std::string line(const Form& form, const std::string& command) {
  Words words;
  for (const auto& [name, text] : form.files) {
    words.emplace_back("printf '%s\\n'");
    Words lines = split(text, '\n');
    if (!lines.empty() && lines.back().empty()) lines.pop_back();
    for (const std::string& l : lines) words.push_back(shell_quoted(l));
    words.push_back("> " + shell_quoted(name) + " &&");
  }
  for (const auto& [name, value] : form.environment) words.push_back(name + "=" + shell_quoted(value));
  for (std::string word : form.words) {
    for (const auto& [name, text] : form.files)
      if (const std::size_t at = word.find("{" + name + "}"); at != std::string::npos)
        word.replace(at, name.size() + 2, name);
    words.push_back(shell_quoted(word));
  }
  if (!command.empty()) words.push_back(command);
  return join(words, " ");
}

Layout parse(const std::string& form, const Machine& machine, const std::string& text) {
  const Syntax& s = syntax(form);
  return s.parse({machine, form, s.example}, text);
}

namespace {

json to_json(const Form& form, const std::string& command) {
  json environment = json::object(), files = json::object();
  for (const auto& [name, value] : form.environment) environment[name] = value;
  for (const auto& [name, text] : form.files) files[name] = text;
  return {{"line", line(form, command)}, {"words", form.words}, {"environment", environment}, {"files", files}};
}

std::string of_input(const std::string& text) {
  if (text != "-") return text;
  std::string all;
  for (char c = 0; all.size() <= kMostText && std::cin.get(c);) all += c;
  if (all.size() > kMostText) throw UsageError("TEXT", "standard input has more than 1 MiB", "a line or a rank file");
  return all;
}

}  // namespace

int translate_verb(int argc, char** argv) {
  std::string from = "parts", text, parts, to_text = "all", topology = "host", memory_text, command = "./a.out";
  int tasks = 1;
  bool as_json = false;
  Arguments app{
      "One layout in the words of another launcher.\n\n"
      "example: meshmark translate --from omp-places '{0,4},{1,5}' --to slurm,mpich",
      "meshmark translate"};
  app.add("--from", from, "form of TEXT, or `affinity` (LSF's affinity[…])").show_default();
  app.add("TEXT", text, "a line, an option's or variable's value, a rank file's text; - is standard input");
  app.add("--parts", parts, "instead of --from and TEXT: CPUs of the parts, such as '0,4;1,5'");
  app.add("--to", to_text, "forms, with commas between, or all").show_default();
  app.add("--topology", topology, "host, a synthetic description or a file of hwloc's XML").show_default();
  app.add("--memory", memory_text, "memory policy, such as bind or interleave=0-1 [default]");
  app.add("--tasks", tasks, "tasks, for --from affinity").from(1, 1 << 16).show_default();
  app.add("--command", command, "the program in the lines").show_default();
  app.flag("--json", as_json, "one JSON object");
  std::string all = "forms:\n";
  for (const Syntax& s : syntaxes())
    all += "  " + std::string(s.name) + std::string(12 - std::string(s.name).size(), ' ') + s.help + "\n";
  app.footer(all);
  if (!app.read(argc, argv, "translate")) return 0;
  if (parts.empty() == text.empty())
    throw UsageError("TEXT", parts.empty() ? "is missing" : "is there beside --parts", "TEXT or --parts");
  const Machine machine = machine_of(topology);
  Memory memory = memory_text.empty() ? Memory{} : parse_memory(memory_text);
  Layout layout;
  if (!parts.empty()) {
    layout = parse("parts", machine, parts);
  } else if (from == "affinity") {
    const Affinity affinity = parse_affinity(of_input(text), tasks);
    layout = place(machine, affinity, {}).layout;
    if (memory_text.empty()) memory = affinity.memory;
  } else {
    layout = parse(from, machine, of_input(text));
  }
  const bool every = to_text == "all";
  Words to = split(to_text, ',');
  if (every) {
    to.clear();
    for (const Syntax& s : syntaxes()) to.emplace_back(s.name);
  }
  json made = json::object(), refused = json::object();
  for (const std::string& form : to) {
    try {
      made[form] = to_json(emit(form, machine, layout, memory), form == "parts" ? "" : command);
      made[form]["numbers"] = syntax(form).numbers;
    } catch (const UsageError& wrong) {
      if (!every) throw;
      refused[form] = wrong.what();
    }
  }
  const std::vector<int> cpus = layout.cpus();
  const bool inside = std::includes(machine.allowed.begin(), machine.allowed.end(), cpus.begin(), cpus.end());
  Layout counted;
  if (inside)
    for (const auto& part : layout.parts) counted.parts.push_back(relative(part, machine.allowed));
  if (as_json) {
    std::cout << to_line({{"parts", layout.parts},
                          {"relative", inside ? json(counted.parts) : json()},
                          {"allowed", machine.allowed},
                          {"forms", made},
                          {"refused", refused}})
              << "\n";
    return 0;
  }
  std::cout << "CPUs " << lists(layout, ";") << " (relative to the allowed " << cpu_list(machine.allowed) << ": "
            << (inside ? lists(counted, ";") : "some are not allowed") << ")\n";
  for (const std::string& form : to) {
    std::cout << "\n" << form << "\n";
    if (made.contains(form))
      std::cout << "  " << made[form]["line"].get<std::string>() << "\n";
    else
      std::cout << "  cannot: " << refused[form].get<std::string>() << "\n";
  }
  return 0;
}

}  // namespace mm::place
