#pragma once
/// PAGEMAP_SCAN, which lists the pages of another process (Linux 6.7). It is newer than the headers of some kernels;
/// the numbers are part of the kernel's interface.
#include <sys/ioctl.h>

#include <cstdint>

namespace mm::place {

struct PagemapScan {
  std::uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
  std::uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
struct PagemapRegion {
  std::uint64_t start, end, categories;
};
inline constexpr unsigned long kPagemapScan = _IOWR('f', 16, PagemapScan);
inline constexpr std::uint64_t kIsFile = 1 << 2, kIsPresent = 1 << 3, kIsZero = 1 << 5, kIsHuge = 1 << 6;

}  // namespace mm::place
