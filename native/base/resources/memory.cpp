#include "base/resources/memory.hpp"

#include <hwloc.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <fstream>
#include <limits>
#include <thread>

#include "base/error.hpp"
#include "base/resources/team.hpp"
#include "base/topology/readers/hwloc_reader.hpp"
#include "sys/files.hpp"
#include "sys/words.hpp"

namespace mm {
namespace {

constexpr std::size_t kMi = std::size_t{1} << 20;

std::size_t base_page() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::size_t alignment(Pages pages) { return pages == Pages::huge_1g ? kMi << 10 : 2 * kMi; }

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

/// Returns the value of a key in a meminfo text, converted from kB to bytes; 0 if the key is missing.
std::size_t meminfo_bytes(const std::string& text, const char* key) {
  const std::size_t at = text.find(key);
  if (at == std::string::npos) return 0;
  const std::size_t digits = text.find_first_of("0123456789", at);
  return digits == std::string::npos ? 0 : leading_number(std::string_view(text).substr(digits)) << 10;
}

/// Returns how many bytes can be allocated before a cgroup of this process reaches its memory limit; the maximum of
/// std::size_t if there is no limit. The Linux kernel kills a process that exceeds such a limit, even if the machine
/// has free memory.
std::size_t cgroup_available() {
  std::string path = value_of(read_text("/proc/self/cgroup"), "0::");
  std::size_t available = std::numeric_limits<std::size_t>::max();
  while (!path.empty()) {
    const std::string dir = "/sys/fs/cgroup" + path;
    const std::int64_t limit = number_in(dir + "/memory.max", kUnlimited);
    const std::int64_t usage = number_in(dir + "/memory.current", kUnlimited);
    if (limit != kUnlimited && usage != kUnlimited)
      available = std::min(available, static_cast<std::size_t>(std::max<std::int64_t>(0, limit - usage)));
    if (path == "/") break;
    path = path.substr(0, std::max<std::size_t>(path.rfind('/'), 1));
    if (path == "/") break;
  }
  return available;
}

/// Returns the memory available on a node in bytes: free pages and half of the page cache, which is not all
/// reclaimable.
std::size_t node_available(int node) {
  const std::string text = read_text("/sys/devices/system/node/node" + std::to_string(node) + "/meminfo");
  const std::size_t free = meminfo_bytes(text, "MemFree:"), cache = meminfo_bytes(text, "FilePages:");
  return free + cache / 2;
}

void bind_memory(std::byte* at, std::size_t bytes, const MemoryRequest& request) {
  if (request.policy == Policy::local) return;  // first touch by the CPU that will use it
  const auto topo = hwloc_handle();
  hwloc_nodeset_t set = hwloc_bitmap_alloc();
  if (request.policy == Policy::node)
    hwloc_bitmap_only(set, static_cast<unsigned>(request.node));
  else
    hwloc_bitmap_copy(set, hwloc_topology_get_allowed_nodeset(topo));
  const int rc = hwloc_set_area_membind(topo, at, bytes, set,
                                        request.policy == Policy::node ? HWLOC_MEMBIND_BIND : HWLOC_MEMBIND_INTERLEAVE,
                                        HWLOC_MEMBIND_BYNODESET | HWLOC_MEMBIND_STRICT);
  const int error = errno;
  hwloc_bitmap_free(set);
  // Without NUMA support in the Linux kernel there is one node, and the request is already met.
  if (rc != 0 && !(error == ENOSYS && hwloc_get_nbobjs_by_type(topo, HWLOC_OBJ_NUMANODE) == 1))
    throw Absent(std::string("the Linux kernel refused the memory policy: ") + std::strerror(error),
                 "permit mbind(2), for example in the container's seccomp profile");
}

void touch(std::byte* at, std::size_t bytes, int cpu) {
  const auto work = [=] {
    if (cpu >= 0) pin(cpu);
    for (std::size_t i = 0; i < bytes; i += base_page()) at[i] = std::byte{0};
  };
  if (cpu < 0) return work();
  std::thread(work).join();
}

}  // namespace

Pages parse_pages(const std::string& text) {
  if (text == "4KiB" || text == "base" || text == "64KiB" || text == "16KiB") return Pages::base;
  if (text == "thp") return Pages::thp;
  if (text == "2MiB") return Pages::huge_2m;
  if (text == "1GiB") return Pages::huge_1g;
  throw UsageError("pages", "found " + quote(text), "4KiB, thp, 2MiB, 1GiB");
}

std::size_t page_bytes(Pages pages) {
  switch (pages) {
    case Pages::base:
      return base_page();
    case Pages::huge_1g:
      return kMi << 10;
    default:
      return 2 * kMi;
  }
}

std::string name(Pages pages) {
  switch (pages) {
    case Pages::base:
      return std::to_string(base_page() >> 10) + "KiB";
    case Pages::thp:
      return "thp";
    case Pages::huge_2m:
      return "2MiB";
    default:
      return "1GiB";
  }
}

std::size_t memory_available() {
  return std::min(meminfo_bytes(read_text("/proc/meminfo"), "MemAvailable:"), cgroup_available());
}

std::shared_ptr<Arena> Arena::make(const MemoryRequest& request) {
  const std::size_t align = alignment(request.pages), page = page_bytes(request.pages);
  const std::size_t bytes = (request.bytes + page - 1) / page * page;
  const bool pool = request.pages == Pages::huge_2m || request.pages == Pages::huge_1g;
  // Leave a tenth free: a measurement that makes the host swap or kill processes is worthless. With several nodes, the
  // memory of the requested node counts, too: a bound process that exceeds it is killed.
  std::size_t available = memory_available();
  const bool one_node = request.policy == Policy::node && topology().memory_nodes.size() > 1;
  if (one_node) available = std::min(available, node_available(request.node));
  if (!pool && bytes > available - available / 10)
    throw Absent("not enough memory: " + std::to_string(bytes >> 20) + " MiB requested, " +
                     std::to_string((available - available / 10) >> 20) + " MiB usable" +
                     (one_node ? " on node " + std::to_string(request.node) : ""),
                 "a smaller footprint, or more memory");

  std::shared_ptr<Arena> arena(new Arena);
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  if (pool) {
    const auto page_kib = page / 1024;
    const std::string pool_dir =
        (one_node ? "/sys/devices/system/node/node" + std::to_string(request.node) + "/hugepages"
                  : std::string("/sys/kernel/mm/hugepages")) +
        "/hugepages-" + std::to_string(page_kib) + "kB";
    const std::int64_t free_pages = number_in(pool_dir + "/free_hugepages", 0);
    if (static_cast<std::size_t>(free_pages) * page < bytes)
      throw Absent("not enough explicit huge pages of " + name(request.pages) + " in the pool (" +
                       std::to_string(bytes / page) + " requested)",
                   "echo " + std::to_string(bytes / page) + " > " + pool_dir + "/nr_hugepages");
    flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | ((request.pages == Pages::huge_2m ? 21 : 30) << 26);
  }
  arena->map_bytes_ = pool ? bytes : bytes + align;
  void* mapping = mmap(nullptr, arena->map_bytes_, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (mapping == MAP_FAILED)
    throw Absent("cannot map memory: " + std::string(std::strerror(errno)), "a smaller footprint");
  arena->map_ = static_cast<std::byte*>(mapping);
  const auto address = reinterpret_cast<std::uintptr_t>(mapping);
  arena->data_ = arena->map_ + ((address + align - 1) / align * align - address);
  arena->bytes_ = bytes;
  arena->request_ = request;
  if (request.pages == Pages::thp) madvise(arena->data_, bytes, MADV_HUGEPAGE);
  if (request.pages == Pages::base) madvise(arena->map_, arena->map_bytes_, MADV_NOHUGEPAGE);
  bind_memory(arena->data_, bytes, request);
  touch(arena->data_, bytes, request.touch_cpu);
  return arena;
}

Arena::~Arena() {
  if (map_ != nullptr) munmap(map_, map_bytes_);
}

double Arena::huge_share() const {
  if (request_.pages == Pages::huge_2m || request_.pages == Pages::huge_1g)
    return 1.0;  // the pool contains no other size
  std::ifstream in("/proc/self/smaps");
  std::size_t huge = 0;
  bool inside = false;
  const auto begin = reinterpret_cast<std::uintptr_t>(data_), end = begin + bytes_;
  for (std::string line; std::getline(in, line);) {
    std::uintptr_t low = 0, high = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &low, &high) == 2)
      inside = low < end && high > begin;
    else if (inside && line.rfind("AnonHugePages:", 0) == 0)
      huge += std::stoull(line.substr(14)) << 10;
  }
  return std::min(1.0, static_cast<double>(huge) / static_cast<double>(bytes_));
}

std::map<int, double> Arena::node_shares(std::size_t max_pages) const {
  const std::size_t page = base_page(), total_pages = bytes_ / page;
  const std::size_t count = std::max<std::size_t>(1, std::min(total_pages, max_pages));
  std::vector<void*> addresses(count);
  std::vector<int> status(count, -1);
  for (std::size_t i = 0; i < count; ++i) addresses[i] = data_ + i * total_pages / count * page;
  std::map<int, double> shares;
  if (syscall(SYS_move_pages, 0, count, addresses.data(), nullptr, status.data(), 0) != 0) return {{-1, 1.0}};
  for (int node : status) shares[node < 0 ? -1 : node] += 1.0 / static_cast<double>(count);
  return shares;
}

}  // namespace mm
