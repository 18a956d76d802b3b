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
  /// node → B. None if it cannot be read now; throws Absent if it never can.
  std::optional<std::map<int, std::uint64_t>> count(pid_t pid) const;

 private:
  std::vector<int> nodes_;
};

}  // namespace mm::load
