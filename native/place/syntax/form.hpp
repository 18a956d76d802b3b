#pragma once
/// Functions that the syntaxes of launchers and run times share. Each syntax is a file of this folder and a line in
/// `syntaxes()`.
#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/options/arguments.hpp"
#include "base/options/options.hpp"
#include "place/binding/bind.hpp"
#include "place/syntax.hpp"
#include "place/syntax/command_line.hpp"

namespace mm::place::syntax {

constexpr int kHighest = 1 << 20;             // maximum CPU number, as in parse_cpu_list
constexpr std::size_t kMaxNumbers = 1 << 20;  // maximum CPUs that a text may expand to

constexpr const char* kAbsolute = "absolute";  // meaning of numbers

// Parses numbers of CPUs; every error names the form, the invalid part and an example.
struct Reader {
  const Machine& machine;
  std::string form, example;

  [[noreturn]] void refuse(const std::string& word) const { throw UsageError(form, "found " + quote(word), example); }

  // Parses `text`, which is all of `word` or a part of it.
  int number(const std::string& text, const std::string& word) const {
    if (text.empty() || text.size() > 7 || text.find_first_not_of("0123456789") != std::string::npos) refuse(word);
    const int n = std::stoi(text);
    if (n > kHighest) refuse(word);
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

  // Parses A, A-B, A-B:S (every S-th), in the given order.
  std::vector<int> range(const std::string& word) const {
    const std::size_t dash = word.find('-'), colon = word.find(':');
    if (dash == std::string::npos) return {number(word)};
    if (colon < dash) refuse(word);
    const int low = number(word.substr(0, dash), word);
    const int high = number(word.substr(dash + 1, colon == std::string::npos ? colon : colon - dash - 1), word);
    const int step = colon == std::string::npos ? 1 : number(word.substr(colon + 1), word);
    if (high < low || step < 1) refuse(word);
    std::vector<int> numbers;
    for (int i = low; i <= high; i += step) numbers.push_back(i);
    return numbers;
  }

  // Parses ranges separated by `by`, in the given order.
  std::vector<int> list(const std::string& text, char by = ',') const {
    std::vector<int> all;
    for (const std::string& word : split(text, by)) {
      for (const int n : range(word)) all.push_back(known(n, word));
      if (all.size() > kMaxNumbers) refuse(word);
    }
    return all;
  }

  // Parses a hexadecimal mask of any width: 0x11, 11, 0x1,00000000 and the Linux kernel's 1,00000000 (groups of 32
  // bits).
  std::vector<int> mask(const std::string& word) const {
    const auto cpus = parse_mask(word);
    if (!cpus) refuse(word);
    for (const int cpu : *cpus) known(cpu, word);
    return *cpus;
  }

  // Removes the repetition from the end of a word and returns it: `0*4` means 0 four times.
  std::size_t repeats(std::string& word, char by) const {
    const std::size_t at = word.find(by);
    if (at == std::string::npos) return 1;
    const int n = number(word.substr(at + 1));
    if (n < 1) refuse(word);
    word.resize(at);
    return static_cast<std::size_t>(n);
  }
};

/// Returns the CPUs of a list as the Linux kernel and Meshmark write it, with strides and `^`.
std::vector<int> cpus_of(const Reader& read, const std::string& list);
std::vector<int> ascending(std::vector<int> cpus);
void add(Layout& layout, const std::vector<int>& part, std::size_t times = 1);
Layout singles(const std::vector<int>& cpus);
std::string hex(const std::vector<int>& bits);
std::string plain(const std::vector<int>& cpus, const char* by);
std::string lists(const Layout& layout, const char* by);
/// Returns CPUs in hwloc's order, core by core.
std::vector<Cpu> in_order(const Machine& machine, const std::vector<int>& among);
/// Returns the CPUs that logical numbers of hwloc, and of launchers based on it, refer to: the CPUs of the control
/// group, whatever the affinity of the caller. (Open MPI 5.0 under `taskset -c 1` still numbers CPU 0 as 0, and binds
/// to it.)
const std::vector<int>& numbered_cpus(const Machine& machine);
std::vector<Cpu> logical(const Machine& machine);
/// Returns the nodes with memory; all nodes if a description has no sizes.
std::vector<int> nodes_with_memory(const Machine& machine);
/// Returns the first parts if there are fewer tasks than parts. If there are more tasks, repeats the parts if the
/// launcher does so.
Layout limited_to_tasks(const Reader& read, Layout layout, const std::optional<std::string>& tasks, bool repeats);
/// Takes the memory policy from numactl's options; returns nullopt without one. Throws UsageError if there are several.
std::optional<MemoryPolicy> take_numactl_memory(const Reader& read, CommandLine& line);
const KnownProgram& numactl_program();
[[noreturn]] void no_weights(const std::string& form);
/// Returns numactl's options for a memory policy; empty for the default.
Words numactl_memory(const std::string& form, const Machine& machine, const Layout& layout, const MemoryPolicy& memory);
Form with_numactl(const std::string& form, Form result, const Machine& machine, const Layout& layout,
                  const MemoryPolicy& memory);
std::string count(const Layout& layout);

// One entry per form.
struct Syntax {
  const char *name, *help, *example;
  const char* numbers;  ///< meaning of its numbers
  bool one_mask;        ///< all parts share one mask
  bool one_cpu;         ///< a part is one CPU
  std::function<Form(const Machine&, const Layout&, const MemoryPolicy&)> emit;
  KnownProgram program;
  /// Takes the layout and the memory policy out of a text; what it leaves in the command line is reported.
  std::function<Parsed(const Reader&, CommandLine&)> parse;
};

/// Parses taskset's options and mask; leaves the command.
Parsed parse_taskset(const Reader& read, CommandLine& line);
const KnownProgram& taskset_program();

std::vector<Syntax> open_mpi();
std::vector<Syntax> mpich();
std::vector<Syntax> slurm();
std::vector<Syntax> lsf();
std::vector<Syntax> flux();
std::vector<Syntax> jsrun();
std::vector<Syntax> remote();
std::vector<Syntax> openmp();
std::vector<Syntax> hwloc();
std::vector<Syntax> likwid();
std::vector<Syntax> numactl();
std::vector<Syntax> cgroup();
std::vector<Syntax> parts();

/// Returns all syntaxes, in the order of listings.
const std::vector<Syntax>& syntaxes();
/// Returns the syntax of a form. Throws UsageError for an unknown form.
const Syntax& syntax_of(const std::string& form);

}  // namespace mm::place::syntax
