#include "place/syntax/form.hpp"

#include <cctype>
#include <iterator>
#include <map>
#include <set>

namespace mm::place::syntax {
namespace {

Form emit_cpuset(const Machine& machine, const Layout& layout, const MemoryPolicy& memory) {
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

// Takes the list of one of the two files: from a file that the line writes, or from an option of a program that writes
// it.
std::optional<std::string> take_list(CommandLine& line, const std::string& file, const char* docker,
                                     const char* systemd) {
  std::vector<std::string> texts;
  for (const auto& text :
       {line.take_file(file), line.take_variable(file), line.take(docker), line.take_variable(systemd)})
    if (text) texts.push_back(*text);
  for (const char* option : {"-r", "-p"})
    for (const std::string& setting : line.take_all(option)) {
      const std::size_t equals = setting.find('=');
      if (equals != std::string::npos && (setting.substr(0, equals) == file || setting.substr(0, equals) == systemd))
        texts.push_back(setting.substr(equals + 1));
      else
        line.put_back(option, setting);
    }
  if (texts.empty()) return std::nullopt;
  for (const std::string& text : texts)
    if (text != texts.front()) throw UsageError("cpuset", "found two values of " + file, "one");
  return join(shell_words(texts.front()), ",");
}

Parsed parse_cpuset(const Reader& read, CommandLine& line) {
  const auto cpus = line.value() ? line.value() : take_list(line, "cpuset.cpus", "--cpuset-cpus", "AllowedCPUs");
  const auto mems = take_list(line, "cpuset.mems", "--cpuset-mems", "AllowedMemoryNodes");
  if (!cpus && !mems) read.refuse(line.text());
  Parsed parsed{{{cpus ? cpus_of(read, *cpus) : read.machine.allowed}}, {}};
  if (mems) {
    const std::vector<int> nodes = parse_cpu_list("cpuset.mems", *mems, nodes_with_memory(read.machine)),
                           with_memory = nodes_with_memory(read.machine);
    if (!std::includes(with_memory.begin(), with_memory.end(), nodes.begin(), nodes.end()))
      throw UsageError("cpuset.mems", "found " + quote(*mems), "nodes with memory: " + cpu_list(with_memory));
    if (nodes != with_memory) parsed.memory = {"bind", nodes, {}, "default"};
  }
  if (line.program() == "sh") {  // sh -c 'echo $$ > cgroup.procs && exec "$@"' sh COMMAND
    line.take("-c");
    Words command = line.command();
    if (!command.empty()) command.erase(command.begin());
    line.set_command(command);
  }
  if (line.program() == "docker" || line.program() == "podman") {  // docker run [OPTION…] IMAGE [COMMAND…]
    Words command = line.command();
    if (!command.empty()) {
      parsed.left_out.push_back("the image or container " + command.front());
      command.erase(command.begin());
    }
    line.set_command(command);
  }
  return parsed;
}

/// Options of the programs that set control groups. Docker's are listed so that the image is known, which is the
/// first word that is neither an option nor its value.
std::vector<KnownOption> options_of_programs() {
  std::vector<KnownOption> options = {{"-c", 1}, {"-r", 1}, {"-p --property --publish", 1}};
  for (const char* names :
       {"--cpuset-cpus",  "--cpuset-mems", "--name",          "-v --volume",  "-e --env",    "-E --setenv",
        "-m --memory",    "--memory-swap", "--network --net", "-w --workdir", "-u --unit",   "-h --hostname",
        "-l --label",     "--cap-add",     "--cap-drop",      "--cpus",       "--cpu-quota", "--cpu-period",
        "--cpu-shares",   "--device",      "--entrypoint",    "--env-file",   "--gpus",      "--ipc",
        "--mount",        "--pid",         "--pids-limit",    "--platform",   "--restart",   "--runtime",
        "--security-opt", "--shm-size",    "--slice",         "--tmpfs",      "--ulimit",    "--userns"})
    options.push_back({names, 1});
  for (const char* names : {"--rm", "-i --interactive", "-t --tty --pty", "-d --detach", "--init", "--privileged",
                            "--read-only", "--scope"})
    options.push_back({names, 0});
  return options;
}

}  // namespace

std::vector<Syntax> cgroup() {
  return {
      {"cpuset",
       "files of a control group",
       "a list such as 0-3,8",
       kAbsolute,
       true,
       false,
       emit_cpuset,
       {{"sh", "cgset", "docker", "podman", "systemd-run"},
        options_of_programs(),
        false,
        {"container", "run", "create", "update"}},
       parse_cpuset},
  };
}

}  // namespace mm::place::syntax
