#pragma once
/// The folder of a node's own in which programs of users run.
#include <string>

namespace mm::node {

/// Makes a folder empty, also of what its owner may not write; makes it if there is none. Throws Failure.
void empty_folder(const std::string& path);

/// Held by one runner of a name at a time, see `Turn`. What a runner that was killed has left is ended and removed.
class Scratch {
 public:
  /// `folder`: where it is to be; "": $TMPDIR, or /tmp. `name`: of the node. Throws Failure.
  Scratch(const std::string& folder, const std::string& name);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace mm::node
