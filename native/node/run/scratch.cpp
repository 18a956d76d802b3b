#include "node/run/scratch.hpp"

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

#include "base/clock.hpp"
#include "base/error.hpp"
#include "node/run/process.hpp"
#include "sys/files.hpp"

namespace mm::node {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = "MESHMARK_NODE_RUN";  // in the environment of all processes of a program

/// Returns whether a process was started by a program with this mark. The environment of other users' processes cannot
/// be read.
bool is_marked(pid_t pid, const std::string& mark) {
  const std::string environment = '\0' + read_text("/proc/" + std::to_string(pid) + "/environ");
  return environment.find('\0' + mark + '\0') != std::string::npos;
}

/// Kills the processes that a killed runner left behind: they would take CPUs from the current measurement.
void end_earlier(const std::string& mark) {
  for (const double end_s = wall_s() + kKilled_s; wall_s() < end_s;) {
    bool any_marked = false;
    for (const pid_t pid : numbers_in("/proc")) {
      if (pid == ::getpid() || !is_marked(pid, mark)) continue;
      any_marked = true;
      ::kill(pid, SIGKILL);
    }
    if (!any_marked) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

/// Lets the owner remove the content of a folder, which programs may have protected.
void open_up(const std::string& path) {
  std::error_code error;
  fs::permissions(path, fs::perms::owner_all, fs::perm_options::add | fs::perm_options::nofollow, error);
  std::vector<fs::path> folders;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
    if (at->is_directory(error) && !at->is_symlink(error)) folders.push_back(at->path());
  for (const fs::path& folder : folders) open_up(folder.string());
}

}  // namespace

void empty_folder(const std::string& path) {
  std::error_code error;
  fs::create_directory(path, error);
  // The folder itself stays, so that nobody else can take its name.
  std::vector<fs::path> entries;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
    entries.push_back(at->path());
  for (const fs::path& entry : entries) {
    fs::remove_all(entry, error);
    if (!error) continue;
    open_up(entry.string());
    fs::remove_all(entry, error);
    if (error) break;  // files of an earlier run could be taken for results
  }
  if (error) throw Failure("cannot empty " + shown_path(path) + ": " + error.message());
}

ScratchFolder::ScratchFolder(const std::string& folder, const std::string& name) {
  const char* const variable = std::getenv("TMPDIR");
  const std::string parent = !folder.empty() ? folder : variable != nullptr && *variable != '\0' ? variable : "/tmp";
  const std::string path = parent + "/meshmark-node-" + std::to_string(::geteuid()) + "-" + name;
  struct stat status{};
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    throw Failure("cannot make " + shown_path(path) + ": " + std::strerror(errno),
                  "name another folder with --scratch");
  // In a folder that all users can write, another user may have created it, or a link to another place.
  if (::lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid())
    throw Failure(shown_path(path) + ": found no folder of this user", "name another folder with --scratch");
  path_ = path;
  end_earlier(std::string(kMark) + "=" + name);
  empty_folder(path);
  ::chmod(path.c_str(), 0700);
  ::setenv(kMark, name.c_str(), 1);
  // Campaigns on this host find their jobs by this variable (fleet/engines/processes.py); a process that a program
  // leaves behind is not a job.
  ::unsetenv("MESHMARK_JOB");
}

ScratchFolder::~ScratchFolder() {
  std::error_code error;
  fs::remove_all(path_, error);
  if (!error) return;
  open_up(path_);
  fs::remove_all(path_, error);  // the next runner of this name removes what remains
}

}  // namespace mm::node
