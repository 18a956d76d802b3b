#include "place/sample/pages.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "base/error.hpp"
#include "place/binding/pagemap.hpp"
#include "place/binding/pages.hpp"
#include "sys/words.hpp"

namespace mm::place::sample {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::size_t kMostText = std::size_t{1} << 20;         // B of /proc/PID/maps that are read at most
constexpr std::size_t kSmallText = std::size_t{96} << 10;       // B of numa_maps that a small process has at most
constexpr std::uint64_t kSmallBytes = std::uint64_t{32} << 20;  // resident memory of a small process

/// Arguments of PROCMAP_QUERY (Linux 6.11), which is newer than the headers of many systems; the numbers are part of
/// the kernel's interface.
struct Query {
  std::uint64_t size, query_flags, query_addr, vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
  std::uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
  std::uint64_t vma_name_addr, build_id_addr;
};
constexpr unsigned long kQuery = _IOWR('f', 17, Query);
constexpr std::uint64_t kReadable = 1, kCoveringOrNext = 1 << 4;

/// Opens a file of a process.
Fd opened(pid_t process, const char* name) {
  return Fd(::open(("/proc/" + std::to_string(process) + "/" + name).c_str(), O_RDONLY | O_CLOEXEC));
}

/// Returns at most `most` bytes of a file, and whether that is all of it.
std::pair<std::string, bool> beginning(const Fd& file, std::size_t most) {
  std::string text;
  std::array<char, 16384> buffer{};
  while (file && text.size() < most) {
    const ssize_t n = ::read(file.get(), buffer.data(), std::min(buffer.size(), most - text.size()));
    if (n <= 0) return {text, true};
    text.append(buffer.data(), static_cast<std::size_t>(n));
  }
  return {text, false};
}

/// Returns the categories of one page: is it in memory, of a file, huge. Returns 0 if it is not in memory, and nothing
/// if the Linux kernel is too old.
std::optional<std::uint64_t> categories(int pagemap, std::uint64_t address) {
  PagemapRegion region{};
  PagemapScan scan{};
  scan.size = sizeof scan;
  scan.start = address;
  scan.end = address + kPage;
  scan.vec = reinterpret_cast<std::uintptr_t>(&region);
  scan.vec_len = 1;
  scan.category_mask = kIsPresent;
  scan.return_mask = kIsFile | kIsPresent | kIsZero | kIsHuge;
  const int n = ::ioctl(pagemap, kPagemapScan, &scan);
  if (n < 0) return {};
  return n == 0 ? 0 : region.categories;
}

/// Addresses at about equal distances in the mappings of a process. The distance doubles, and every second address is
/// dropped, whenever there are too many of them: the walk needs no total in advance.
class Addresses {
 public:
  Addresses(std::size_t most, std::uint64_t step) : most_(most), step_(step) {}

  /// Steps over the address space, so that the number of mappings does not matter. After a hole, the next address is at
  /// a random distance of at most one step, so that every page has the same chance.
  void walk(Mappings& mappings) {
    std::minstd_rand random;
    std::uint64_t at = 0;
    while (const auto mapping = mappings.at_or_after(at)) {
      if (mapping->begin > at) at = mapping->begin + random() % (step_ / kPage) * kPage;
      if (at >= mapping->end) continue;
      add(at, mapping->of_file);
      at += step_;
    }
  }

  struct Address {
    std::uint64_t page;
    bool of_file;
  };
  const std::vector<Address>& all() const { return all_; }

 private:
  void add(std::uint64_t address, bool of_file) {
    all_.push_back({address / kPage * kPage, of_file});
    if (all_.size() < 2 * most_) return;
    for (std::size_t i = 0; 2 * i < all_.size(); ++i) all_[i] = all_[2 * i];
    all_.resize((all_.size() + 1) / 2);
    step_ *= 2;
  }

  std::size_t most_;
  std::uint64_t step_;
  std::vector<Address> all_;
};

PageSample counted(const std::string& numa_maps, pid_t process) {
  const PageCount count = parse_numa_maps(numa_maps);
  PageSample sample;
  sample.process_bytes = count.own;
  sample.file_bytes = count.files;
  for (const auto& [key, bytes] : count.by_policy) sample.policies[key.second] += bytes;
  sample.huge_bytes = count.huge_bytes + transparent_huge_bytes(process);
  for (const auto& [node, bytes] : count.own) sample.pages += bytes / kPage;
  sample.mappings = static_cast<std::size_t>(std::ranges::count(numa_maps, '\n'));
  sample.exact = true;
  return sample;
}

}  // namespace

Mappings::Mappings(pid_t process) : file_(opened(process, "maps")) {}

std::optional<Mapping> Mappings::search(std::uint64_t address) {
  std::array<char, 256> path{};
  Query query{};
  query.size = sizeof query;
  query.query_flags = kReadable | kCoveringOrNext;
  query.query_addr = address;
  query.vma_name_addr = reinterpret_cast<std::uintptr_t>(path.data());
  query.vma_name_size = path.size();
  if (::ioctl(file_.get(), kQuery, &query) != 0) {
    if (errno == ENAMETOOLONG) {  // only files have long paths
      query.vma_name_addr = query.vma_name_size = 0;
      path[0] = '/';
      if (::ioctl(file_.get(), kQuery, &query) != 0) return {};
    } else {
      searches_ = errno != ENOTTY && errno != EINVAL;
      return {};
    }
  }
  ++read_;
  return Mapping{query.vma_start, query.vma_end, path[0] == '/' && is_file(path.data())};
}

void Mappings::read_text() {
  const auto [text, whole] = beginning(file_, kMostText);
  truncated_ = !whole;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string line(next_line(rest));
    unsigned long long begin = 0, end = 0;
    char mode[8] = "";
    int path_at = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx %7s %*s %*s %*s %n", &begin, &end, mode, &path_at) < 3) continue;
    ++read_;
    const std::string path =
        static_cast<std::size_t>(path_at) < line.size() ? line.substr(static_cast<std::size_t>(path_at)) : "";
    if (mode[0] == 'r') by_end_[end] = {begin, end, path.starts_with('/') && is_file(path)};
  }
}

std::optional<Mapping> Mappings::at_or_after(std::uint64_t address) {
  if (!file_) return {};
  if (searches_) {
    const auto mapping = search(address);
    if (searches_) return mapping;
    read_text();
  }
  const auto entry = by_end_.upper_bound(address);
  return entry == by_end_.end() ? std::nullopt : std::optional(entry->second);
}

PageSample sample_pages(pid_t process, std::size_t most, std::uint64_t resident_bytes) {
  if (resident_bytes <= kSmallBytes) {
    errno = 0;
    const auto [text, whole] = beginning(opened(process, "numa_maps"), kSmallText);
    if (text.empty() && (errno == EACCES || errno == EPERM)) refuse_pages_of_others(process);
    if (whole && !text.empty()) return counted(text, process);
  }
  errno = 0;
  Mappings mappings(process);
  if (!mappings) {
    if (errno == EACCES || errno == EPERM) refuse_pages_of_others(process);
    return {};
  }
  Addresses addresses(most, std::max(kPage, resident_bytes / most / kPage * kPage));
  addresses.walk(mappings);
  PageSample sample;
  sample.mappings = mappings.read();
  sample.truncated = mappings.truncated();
  sample.addresses = addresses.all().size();
  std::vector<void*> pages;
  for (const auto& address : addresses.all())
    pages.push_back(reinterpret_cast<void*>(address.page));  // NOLINT(performance-no-int-to-ptr): in another process
  std::vector<int> nodes(pages.size(), -ENOENT);
  if (::syscall(SYS_move_pages, process, pages.size(), pages.data(), nullptr, nodes.data(), 0) < 0) {
    if (errno == EPERM || errno == EACCES) refuse_pages_of_others(process);
    if (errno == ENOSYS)
      throw Absent("this Linux kernel does not report the nodes of pages", "a kernel with CONFIG_MIGRATION");
    return {};
  }
  const Fd pagemap = opened(process, "pagemap");
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (nodes[i] < 0) continue;
    const auto& address = addresses.all()[i];
    const std::uint64_t kind = categories(pagemap.get(), address.page).value_or(address.of_file ? kIsFile : 0);
    // Written pages in a private mapping of a file belong to the process: its data segments. Pages of shared memory
    // count as pages of a file for the Linux kernel.
    const bool of_file = address.of_file && (kind & kIsFile) != 0;
    (of_file ? sample.file_bytes : sample.process_bytes)[nodes[i]] += kPage;
    if (!of_file && (kind & kIsHuge) != 0) sample.huge_bytes += kPage;
    ++sample.pages;
  }
  return sample;
}

}  // namespace mm::place::sample
