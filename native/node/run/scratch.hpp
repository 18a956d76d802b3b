#pragma once
/// The private folder of a node in which programs of users run.
#include <string>

namespace mm::node {

/// Makes a folder empty, even if its owner may not write parts of it; creates it if it does not exist. Throws Failure.
void empty_folder(const std::string& path);

/// One runner of a name holds it at a time, see `Turn`. What a killed runner left behind is ended and removed.
class ScratchFolder {
 public:
  /// `folder`: its parent; "": $TMPDIR, or /tmp. `name`: name of the node. Throws Failure.
  ScratchFolder(const std::string& folder, const std::string& name);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace mm::node
