#include "place/run/launch.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/options/options.hpp"
#include "base/resources/child.hpp"
#include "place/command.hpp"

namespace mm::place::job {

std::pair<int, std::string> exec_failure(const std::string& program) {
  std::vector<std::string> places = {program};
  const bool has_folder = program.find('/') != std::string::npos;
  if (!has_folder) {
    places = split(std::getenv("PATH") == nullptr ? "/bin:/usr/bin" : variable("PATH"), ':');
    for (std::string& place : places) place = (place.empty() ? "." : place) + "/" + program;
  }
  bool exists = false;
  for (const std::string& place : places) {
    if (access(place.c_str(), X_OK) == 0) return {0, ""};
    exists = exists || access(place.c_str(), F_OK) == 0;
  }
  const std::string description = quote(program) + (has_folder ? "" : " in PATH");
  if (exists) return {kNotExecutable, description + " cannot be executed: Permission denied"};
  return {kNotFound, "found no " + description};
}

int complain(const std::pair<int, std::string>& unfit_command) {
  std::fprintf(stderr, "meshmark: error: command: %s\n", unfit_command.second.c_str());
  return unfit_command.first;
}

[[noreturn]] void become(const std::vector<std::string>& command) {
  const std::vector<char*> arguments = argument_vector(command);
  execvp(arguments[0], arguments.data());
  const int status = errno == ENOENT ? kNotFound : kNotExecutable;
  std::fprintf(stderr, "meshmark: error: command: %s cannot be executed: %s\n", quote(arguments[0]).c_str(),
               errno_text().c_str());
  _exit(status);
}

bool program_uses_daemon(const std::string& program) {
  static const std::set<std::string> launchers = {"srun",    "flux",   "jsrun",     "aprun",  "prun", "bsub",
                                                  "blaunch", "pbsdsh", "pbs_tmrsh", "sbatch", "qsub"};
  return launchers.contains(program.substr(program.rfind('/') + 1));
}

std::string program_of_library(const std::string& program, const std::string& form) {
  const char* const kind = form == "mpich" ? ".mpich" : form.starts_with("openmpi") ? ".openmpi" : nullptr;
  if (kind == nullptr) return program;
  for (const std::string& folder : split(variable("PATH"), ':')) {
    const std::string path = (folder.empty() ? "." : folder) + "/" + program;
    if (access(path.c_str(), X_OK) == 0) return access((path + kind).c_str(), X_OK) == 0 ? path + kind : program;
  }
  return program;
}

std::vector<std::string> launcher_words(const std::string& form, int ranks) {
  const std::map<std::string, std::vector<std::string>> starts = {
      {"openmpi", {"mpirun", "-np"}}, {"openmpi5", {"mpirun", "-np"}}, {"mpich", {"mpiexec", "-n"}},
      {"slurm", {"srun", "-n"}},      {"slurm-mask", {"srun", "-n"}},  {"flux", {"flux", "run", "-n"}}};
  const auto start = starts.find(form);
  if (start == starts.end())
    throw UsageError("launcher", "found " + quote(form), "openmpi, openmpi5, mpich, slurm, slurm-mask, flux");
  std::vector<std::string> arguments = start->second;
  arguments.push_back(std::to_string(ranks));
  return arguments;
}

std::vector<std::string> words_of(const Form& form) {
  std::vector<std::string> arguments = form.words;
  for (const auto& [name, text] : form.files) {
    const int fd = memfd_create(name.c_str(), 0);
    if (fd < 0 || write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      throw Failure("cannot store the launcher's " + name + ": " + errno_text());
    lseek(fd, 0, SEEK_SET);
    const std::string mark = "{" + name + "}";
    for (std::string& argument : arguments)
      if (const std::size_t at = argument.find(mark); at != std::string::npos)
        argument.replace(at, mark.size(), "/proc/self/fd/" + std::to_string(fd));
  }
  return arguments;
}

}  // namespace mm::place::job
