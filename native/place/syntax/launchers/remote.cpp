#include "place/syntax/form.hpp"

/// Launchers that start the same command in each slot of a job, and bind nothing: blaunch of LSF, and pbsdsh and
/// pbs_tmrsh of PBS. taskset, which they start in front of the command, binds all its copies to one mask.
namespace mm::place::syntax {
namespace {

Form emit_with_taskset(const std::string& form, Words words, const Machine& machine, const Layout& layout,
                       const MemoryPolicy& memory) {
  words.insert(words.end(), {"taskset", "-c", cpu_list(layout.parts[0])});
  return with_numactl(form, {std::move(words), {}, {}}, machine, layout, memory);
}

/// Takes the mask of the taskset in front of the command. `has_host`: a host, and options after it, may precede it.
Parsed parse_with_taskset(const Reader& read, CommandLine& line, bool has_host) {
  Words words = line.command(), left_out;
  const auto is_taskset = [&] { return words[0].substr(words[0].rfind('/') + 1) == "taskset"; };
  const auto leave_out = [&] {
    left_out.push_back(words.front());
    words.erase(words.begin());
  };
  if (has_host && !words.empty() && !is_taskset() && words[0].find('/') == std::string::npos) {
    leave_out();
    while (!words.empty() && words[0].starts_with('-')) {
      const bool has_value = words[0] == "-l" && words.size() > 1;
      leave_out();
      if (has_value) {
        left_out.back() += " " + words.front();
        words.erase(words.begin());
      }
    }
  }
  if (line.program().empty() || words.empty() || !is_taskset())
    throw UsageError(read.form,
                     "found no taskset in " + quote(line.text()) + "; " + read.form + " itself binds nothing",
                     read.example);
  Words quoted;
  for (const std::string& word : words) quoted.push_back(shell_quoted(word));
  CommandLine inner(read.form, join(quoted, " "), taskset_program());
  Parsed parsed = parse_taskset(read, inner);
  const Words rest = inner.rest();
  left_out.insert(left_out.end(), rest.begin(), rest.end());
  parsed.left_out.insert(parsed.left_out.begin(), left_out.begin(), left_out.end());
  line.set_command(inner.command());
  return parsed;
}

Form emit_blaunch(const Machine& machine, const Layout& layout, const MemoryPolicy& memory) {
  return emit_with_taskset("blaunch", {"blaunch"}, machine, layout, memory);
}

Parsed parse_blaunch(const Reader& read, CommandLine& line) { return parse_with_taskset(read, line, true); }

Form emit_pbsdsh(const Machine& machine, const Layout& layout, const MemoryPolicy& memory) {
  return emit_with_taskset("pbsdsh", {"pbsdsh", "-c", count(layout), "--"}, machine, layout, memory);
}

Parsed parse_pbsdsh(const Reader& read, CommandLine& line) {
  const bool remote_shell = line.program() == "pbs_tmrsh";
  const auto copies = remote_shell ? std::nullopt : line.take("-c");
  Parsed parsed = parse_with_taskset(read, line, remote_shell);
  parsed.layout = limited_to_tasks(read, parsed.layout, copies, true);
  return parsed;
}

}  // namespace

std::vector<Syntax> remote() {
  return {
      {"blaunch",
       "blaunch in a job of LSF: one copy in each slot, by taskset",
       "'blaunch taskset -c 0-3 ./a.out'",
       kAbsolute,
       true,
       false,
       emit_blaunch,
       {{"blaunch"}, {{"-n", 0}, {"-u", 1}, {"-z", 1}, {"-use-login-shell", 0}, {"-no-shell", 0}}},
       parse_blaunch},
      {"pbsdsh",
       "pbsdsh in a job of PBS: copies by taskset; reads pbs_tmrsh",
       "'pbsdsh -c 4 -- taskset -c 0-3 ./a.out'",
       kAbsolute,
       true,
       false,
       emit_pbsdsh,
       {{"pbsdsh", "pbs_tmrsh"},
        {{"-c", 1}, {"-n", 1}, {"-h", 1}, {"-l", 1}, {"-o", 0}, {"-s", 0}, {"-u", 0}, {"-v", 0}}},
       parse_pbsdsh},
  };
}

}  // namespace mm::place::syntax
