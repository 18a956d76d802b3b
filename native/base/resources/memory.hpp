#pragma once
/// Memory with pages of the requested size on the requested node, touched before any clock starts and verified
/// afterwards.
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mm {

enum class Pages { base, thp, huge_2m, huge_1g };
enum class Policy { local, node, interleave };

Pages parse_pages(const std::string& text);  ///< "4KiB" (or "base"), "thp", "2MiB", "1GiB"; UsageError otherwise
std::size_t page_bytes(Pages pages);         ///< B; thp counts as 2 MiB
std::string name(Pages pages);

struct MemoryRequest {
  std::size_t bytes = 0;
  Pages pages = Pages::base;
  Policy policy = Policy::local;
  int node = -1;       ///< for Policy::node
  int touch_cpu = -1;  ///< CPU that touches it first; -1: the caller's CPU
};

/// A private anonymous mapping, aligned to 2 MiB (or 1 GiB), unmapped with the object.
class Arena {
 public:
  /// Maps, binds (hwloc) and touches every page. Throws Absent if memory, the node or explicit huge pages are
  /// unavailable.
  static std::shared_ptr<Arena> make(const MemoryRequest& request);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data_), bytes_ / sizeof(T)};
  }

  /// Returns the share of the mapping in huge pages, 0 to 1, from /proc/self/smaps.
  double huge_share() const;
  /// Returns the share of the sampled pages on each node, from move_pages(2). Node -1 stands for pages whose node is
  /// unknown (not permitted, not present).
  std::map<int, double> node_shares(std::size_t max_pages = 1024) const;
  const MemoryRequest& request() const { return request_; }

 private:
  Arena() = default;
  std::byte *map_ = nullptr, *data_ = nullptr;
  std::size_t map_bytes_ = 0, bytes_ = 0;
  MemoryRequest request_;
};

/// Returns how many bytes may still be allocated: the minimum of MemAvailable and the cgroup's remaining limit.
std::size_t memory_available();

}  // namespace mm
