#pragma once
/// Samples where the pages of a process are, at a cost that its size does not change.
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "sys/descriptor.hpp"

namespace mm::place::sample {

/// A mapping of a process, with [begin, end) as in /proc/PID/maps.
struct Mapping {
  std::uint64_t begin = 0, end = 0;
  bool of_file = false;  ///< a file or shared library; its pages belong to the process only if it wrote them
};

/// The readable mappings of a process, in ascending order of addresses.
class Mappings {
 public:
  explicit Mappings(pid_t process);

  explicit operator bool() const { return static_cast<bool>(file_); }
  /// Returns the readable mapping that contains `address`, or the next one after it; nothing after the last one.
  std::optional<Mapping> at_or_after(std::uint64_t address);
  /// Returns how many mappings were read. The Linux kernel searches for them since version 6.11; before, the text of
  /// all mappings is read, up to a limit.
  std::size_t read() const { return read_; }
  bool truncated() const { return truncated_; }  ///< the limit was reached, so the rest of the mappings is unknown

 private:
  std::optional<Mapping> search(std::uint64_t address);
  void read_text();

  Fd file_;
  bool searches_ = true;
  std::map<std::uint64_t, Mapping> by_end_;  // for older kernels
  std::size_t read_ = 0;
  bool truncated_ = false;
};

struct PageSample {
  std::map<int, std::uint64_t> process_bytes;     ///< node → B of pages that belong to the process, in the sample
  std::map<int, std::uint64_t> file_bytes;        ///< node → B of pages of files and shared libraries, in the sample
  std::map<std::string, std::uint64_t> policies;  ///< policy of mappings → B of `process_bytes`; only if `exact`
  std::uint64_t huge_bytes = 0;                   ///< part of `process_bytes` in huge pages
  std::uint64_t pages = 0;                        ///< number of sampled pages in memory; all of them if `exact`
  std::uint64_t addresses = 0;                    ///< number of addresses that were examined
  std::size_t mappings = 0;                       ///< number of mappings that were read
  bool exact = false;                             ///< all pages were counted
  bool truncated = false;                         ///< only the first mappings were read
};

/// Returns the nodes of about `most` pages at equal distances in the readable memory of a process. A small process is
/// counted exactly. Throws Absent if the process belongs to another user; the sample of a process that has ended is
/// empty.
PageSample sample_pages(pid_t process, std::size_t most, std::uint64_t resident_bytes);

}  // namespace mm::place::sample
