#pragma once
/// Files that a test makes or unpacks.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

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
    const std::string tar = "tar xJf '" + (machines / (machine + ".tar.xz")).string() + "' -C '" + path_.string() +
                            "' hwloc.xml root 2>/dev/null";
    return std::system(tar.c_str()) == 0;
  }

 private:
  std::filesystem::path path_;
};
