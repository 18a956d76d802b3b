#include "place/syntax.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/options/options.hpp"
#include "place/syntax/form.hpp"

namespace mm::place {
namespace syntax {

const std::vector<Syntax>& syntaxes() {
  static const std::vector<Syntax> all = [] {
    std::vector<Syntax> form_with_pages;
    for (const auto family :
         {open_mpi, mpich, slurm, lsf, flux, jsrun, remote, openmp, hwloc, likwid, numactl, cgroup, parts})
      for (Syntax& entry : family()) form_with_pages.push_back(std::move(entry));
    return form_with_pages;
  }();
  return all;
}

const Syntax& syntax_of(const std::string& form) {
  Words names;
  for (const Syntax& s : syntaxes()) {
    if (form == s.name) return s;
    names.emplace_back(s.name);
  }
  throw UsageError("form", "found " + quote(form), join(names, ", "));
}

}  // namespace syntax

using namespace syntax;

namespace {

std::string join_quoted(const Words& words) {
  Words quoted;
  for (const std::string& word : words) quoted.push_back(shell_quoted(word));
  return join(quoted, " ");
}

std::string names_of(bool (*can)(const Syntax&)) {
  Words names;
  for (const Syntax& s : syntaxes())
    if (can(s)) names.emplace_back(s.name);
  return join(names, ", ");
}

// A description without sizes (`pack:2 [numa] core:4`) leaves them open: its nodes are not empty.
Machine with_sizes(Machine machine) {
  const std::vector<int> with_memory = nodes_with_memory(machine);
  for (Node& node : machine.nodes)
    if (node.bytes.value_or(0) == 0 && std::binary_search(with_memory.begin(), with_memory.end(), node.id))
      node.bytes = 1;
  return machine;
}

// Sets the page size that a line requests through glibc's tunable.
void add_pages(CommandLine& line, MemoryPolicy& memory) {
  const auto tunables = line.take_variable("GLIBC_TUNABLES");
  if (!tunables) return;
  constexpr std::pair<const char*, const char*> kPages[] = {{"glibc.malloc.hugetlb=1", "thp"},
                                                            {"glibc.malloc.hugetlb=2097152", "2MiB"},
                                                            {"glibc.malloc.hugetlb=1073741824", "1GiB"}};
  for (const auto& [tunable, pages] : kPages)
    if (*tunables == tunable) memory.pages = pages;
  if (memory.pages == "default") throw UsageError("GLIBC_TUNABLES", "found " + quote(*tunables), kPages[0].first);
}

void add_rest(const CommandLine& line, Parsed& parsed) {
  const Words rest = line.rest();
  parsed.left_out.insert(parsed.left_out.end(), rest.begin(), rest.end());
}

// Reads the command that the launcher starts, and the memory policy of a numactl in front of it.
void read_command(const Reader& read, Words words, Parsed& parsed) {
  const auto starts = [&](const char* program) {
    return !words.empty() && words[0].substr(words[0].rfind('/') + 1) == program;
  };
  for (const char* program : {"taskset", "hwloc-bind", "likwid-pin"})
    if (starts(program))
      throw UsageError(read.form, "found a second binding, by " + quote(words[0]), "one binding in a text");
  if (starts("numactl")) {
    CommandLine line("numactl", join_quoted(words), numactl_program());
    for (const char* option : {"--physcpubind", "--cpunodebind"})
      if (line.take(option))
        throw UsageError(read.form, std::string("found a second binding, by numactl ") + option,
                         "one binding in a text");
    if (const auto memory = take_numactl_memory({read.machine, "numactl", "'--membind=0'"}, line)) {
      if (parsed.memory.policy != "default")
        throw UsageError(read.form, "found two memory policies, one of them by numactl", "one memory policy in a text");
      const std::string pages = parsed.memory.pages;
      parsed.memory = *memory;
      parsed.memory.pages = pages;
    }
    add_rest(line, parsed);
    words = line.command();
  }
  parsed.command = join_quoted(words);
}

// Sets the page size: glibc's tunable, which all children inherit.
void emit_pages(const std::string& form, Form& form_with_pages, const MemoryPolicy& memory) {
  if (memory.pages == "default") return;
  const std::string value = memory.pages == "thp"    ? "1"
                            : memory.pages == "2MiB" ? "2097152"
                            : memory.pages == "1GiB" ? "1073741824"
                                                     : "";
  if (value.empty())
    throw UsageError(form, "cannot express pages of " + memory.pages, "meshmark run --pages " + memory.pages);
  form_with_pages.environment.emplace_back("GLIBC_TUNABLES", "glibc.malloc.hugetlb=" + value);
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

bool one_mask_only(const std::string& form) { return syntax_of(form).one_mask; }

Form emit(const std::string& form, const Machine& described, const Layout& layout, const MemoryPolicy& memory) {
  const Syntax& s = syntax_of(form);
  const Machine machine = with_sizes(described);
  if (layout.parts.empty()) throw UsageError(form, "the layout has no parts", "at least one");
  const Reader read{machine, form, s.example};
  Layout sorted = layout;
  for (auto& part : sorted.parts) part = ascending(part);
  for (const auto& part : sorted.parts) {
    if (part.empty()) throw UsageError(form, "a part of the layout has no CPU", "at least one");
    for (const int cpu : part) read.known(cpu, cpu_list(part));
    if (s.one_cpu && part.size() > 1)
      throw UsageError(form, "accepts one CPU per part, but a part has " + cpu_list(part), "omp-places, kmp");
    if (s.one_mask && part != sorted.parts[0])
      throw UsageError(form, "has one mask for all parts, but they differ",
                       names_of([](const Syntax& t) { return !t.one_mask && !t.one_cpu; }));
  }
  Form form_with_pages = s.emit(machine, sorted, memory);
  emit_pages(form, form_with_pages, memory);
  return form_with_pages;
}

std::string line(const Form& form, const std::string& command) {
  Words items;
  for (const auto& [name, text] : form.files) {
    items.emplace_back("printf '%s\\n'");
    Words lines = split(text, '\n');
    if (!lines.empty() && lines.back().empty()) lines.pop_back();
    for (const std::string& l : lines) items.push_back(shell_quoted(l));
    items.push_back("> " + shell_quoted(name) + " &&");
  }
  for (const auto& [name, value] : form.environment) items.push_back(name + "=" + shell_quoted(value));
  for (std::string item : form.words) {
    for (const auto& [name, text] : form.files)
      if (const std::size_t at = item.find("{" + name + "}"); at != std::string::npos)
        item.replace(at, name.size() + 2, name);
    items.push_back(shell_quoted(item));
  }
  if (!command.empty()) items.push_back(command);
  return join(items, " ");
}

Parsed parse(const std::string& form, const Machine& described, const std::string& text) {
  const Syntax& s = syntax_of(form);
  const Machine machine = with_sizes(described);
  const Reader read{machine, form, s.example};
  CommandLine line(form, text, s.program);
  Parsed parsed = s.parse(read, line);
  add_pages(line, parsed.memory);
  add_rest(line, parsed);
  read_command(read, line.command(), parsed);
  return parsed;
}

}  // namespace mm::place
