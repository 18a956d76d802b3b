#include "node/scratch.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "clock.hpp"
#include "error.hpp"
#include "node/process.hpp"
#include "sys/files.hpp"

namespace mm::node {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = "MESHMARK_NODE_RUN";  // in the environment of all processes of a program

/// Whether a process was started by a program of this mark. The environment of others cannot be read.
bool is_marked(pid_t pid, const std::string& mark) {
  const std::string environment = '\0' + read_text("/proc/" + std::to_string(pid) + "/environ");
  return environment.find('\0' + mark + '\0') != std::string::npos;
}

/// Kills what a runner that was killed has left: it would take CPUs from what is measured now.
void end_earlier(const std::string& mark) {
  for (const double end_s = wall_s() + kKilled_s; wall_s() < end_s;) {
    bool found = false;
    for (const pid_t pid : numbers_in("/proc")) {
      if (pid == ::getpid() || !is_marked(pid, mark)) continue;
      found = true;
      ::kill(pid, SIGKILL);
    }
    if (!found) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

/// Lets the owner remove what is in a folder, which programs may have protected.
void open_up(const std::string& path) {
  std::error_code wrong;
  fs::permissions(path, fs::perms::owner_all, fs::perm_options::add | fs::perm_options::nofollow, wrong);
  std::vector<fs::path> found;
  for (fs::directory_iterator at(path, wrong), end; !wrong && at != end; at.increment(wrong))
    if (at->is_directory(wrong) && !at->is_symlink(wrong)) found.push_back(at->path());
  for (const fs::path& folder : found) open_up(folder.string());
}

}  // namespace

void empty_folder(const std::string& path) {
  std::error_code wrong;
  fs::create_directory(path, wrong);
  // The folder itself stays, so that nobody else can take its name.
  std::vector<fs::path> found;
  for (fs::directory_iterator at(path, wrong), end; !wrong && at != end; at.increment(wrong))
    found.push_back(at->path());
  for (const fs::path& one : found) {
    fs::remove_all(one, wrong);
    if (!wrong) continue;
    open_up(one.string());
    fs::remove_all(one, wrong);
    if (wrong) break;  // files of an earlier run could be taken for results
  }
  if (wrong) throw Failure("cannot empty " + shown_path(path) + ": " + wrong.message());
}

Scratch::Scratch(const std::string& folder, const std::string& name) {
  const char* const variable = std::getenv("TMPDIR");
  const std::string in = !folder.empty() ? folder : variable != nullptr && *variable != '\0' ? variable : "/tmp";
  const std::string path = in + "/meshmark-node-" + std::to_string(::geteuid()) + "-" + name;
  struct stat about{};
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    throw Failure("cannot make " + shown_path(path) + ": " + std::strerror(errno),
                  "name another folder with --scratch");
  // In a folder that all users can write, another one may have made it, or a link to elsewhere.
  if (::lstat(path.c_str(), &about) != 0 || !S_ISDIR(about.st_mode) || about.st_uid != ::geteuid())
    throw Failure(shown_path(path) + ": found no folder of this user", "name another folder with --scratch");
  path_ = path;
  end_earlier(std::string(kMark) + "=" + name);
  empty_folder(path);
  ::chmod(path.c_str(), 0700);
  ::setenv(kMark, name.c_str(), 1);
  // By it, campaigns on this host find their jobs (fleet/engines/processes.py): what a program leaves is none.
  ::unsetenv("MESHMARK_JOB");
}

Scratch::~Scratch() {
  std::error_code wrong;
  fs::remove_all(path_, wrong);
  if (!wrong) return;
  open_up(path_);
  fs::remove_all(path_, wrong);  // what stays is removed by the next runner of this name
}

}  // namespace mm::node
