#pragma once
/// Memory of a process by NUMA node.
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace mm::load {

class PageCounter {
 public:
  PageCounter();
  /// Returns node → B; nullopt if the memory cannot be read now. Throws Absent if it can never be read.
  std::optional<std::map<int, std::uint64_t>> count(pid_t pid) const;

 private:
  std::vector<int> nodes_;
};

}  // namespace mm::load
