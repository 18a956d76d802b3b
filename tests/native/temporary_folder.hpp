#pragma once
/// Files that a test makes or unpacks.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

/// An empty folder, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "meshmark-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string path(const std::string& name) const { return path_ / name; }
  /// Writes a file, with the folders above it; returns its path.
  std::string write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
    return path_ / name;
  }
  /// Unpacks a recorded machine: `hwloc.xml`, and the kernel's tree in `root`. False if tar cannot read it.
  bool unpack(const std::string& machine) const {
    const std::filesystem::path machines = std::filesystem::path(__FILE__).parent_path().parent_path() / "machines";
    std::vector<std::string> words{"tar", "xJf", machines / (machine + ".tar.xz"), "-C", path_, "hwloc.xml", "root"};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_t child = 0;
    int status = 0;
    return posix_spawnp(&child, "tar", nullptr, nullptr, argv.data(), environ) == 0 &&
           waitpid(child, &status, 0) == child && status == 0;
  }

 private:
  std::filesystem::path path_;
};
