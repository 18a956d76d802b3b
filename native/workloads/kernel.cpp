#include "workloads/kernel.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.hpp"
#include "base/resources/memory.hpp"
#include "workloads/access.hpp"

namespace mm::workloads {
namespace {

std::vector<KernelEntry>& registry() {
  static std::vector<KernelEntry> entries;
  return entries;
}

std::string size_text(std::size_t bytes) { return std::to_string(bytes) + " B"; }

}  // namespace

Memory::Memory(int threads, OnEveryThread on_every_thread)
    : threads_(threads), on_every_thread_(std::move(on_every_thread)) {}

Memory::~Memory() {
  for (const auto& [address, bytes] : maps_) munmap(address, bytes);
}

void* Memory::take_bytes(std::size_t bytes) {
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  // Arrays start at different lines of their pages: at equal offsets, elements of several arrays would compete for the
  // same cache sets.
  const std::size_t skew = (maps_.size() % 15 + 1) * 2 * kLine;
  const std::size_t whole = (bytes + skew + page - 1) / page * page;
  if (const std::size_t available = memory_available(); whole > available)
    throw Absent("needs " + size_text(whole) + ", available are " + size_text(available));
  void* const map = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) throw Absent("the operating system refuses " + size_text(whole) + " of memory");
  maps_.emplace_back(map, whole);
  bytes_ += whole;
  auto* const first = static_cast<char*>(map);
  on_every_thread_([&](int rank) {
    const auto part = [&](int r) {
      return whole / page * static_cast<std::size_t>(r) / static_cast<std::size_t>(threads_);
    };
    for (std::size_t p = part(rank); p < part(rank + 1); ++p) *reinterpret_cast<volatile char*>(first + p * page) = 0;
  });
  return first + skew;
}

void add_kernel(const Info& info, Maker plain, Maker counted) {
  std::vector<KernelEntry>& entries = registry();
  const auto position =
      std::lower_bound(entries.begin(), entries.end(), info.name,
                       [](const KernelEntry& e, const std::string& name) { return e.info.name < name; });
  entries.insert(position, KernelEntry{info, plain, counted});
}

const std::vector<KernelEntry>& kernels() { return registry(); }

const KernelEntry& kernel(const std::string& name) {
  for (const KernelEntry& e : registry())
    if (e.info.name == name) return e;
  throw UsageError("kernel", "found " + quote(name), "a name from `meshmark load kernels`");
}

std::unique_ptr<Kernel> make(const KernelEntry& entry, const Shape& shape, Memory& memory, bool counted) {
  const Info& info = entry.info;
  if (shape.threads < info.min_threads || shape.threads > info.max_threads) {
    const std::string min = std::to_string(info.min_threads), max = std::to_string(info.max_threads);
    throw Absent(info.name + " needs " +
                 (info.max_threads == 1 << 16 ? "at least " + min
                  : min == max                ? min
                                              : min + " to " + max) +
                 " threads");
  }
  if (info.sized && shape.volume_bytes < info.min_bytes)
    throw Absent(info.name + " needs a volume of " + size_text(info.min_bytes) + " or more");
  Shape fitting = shape;
  fitting.volume_bytes = std::min(shape.volume_bytes, info.max_bytes);
  if (!info.strided) fitting.stride = 1;
  return (counted ? entry.counted : entry.plain)(fitting, memory);
}

std::size_t fit(const Shape& shape, std::size_t arrays, std::size_t element, std::size_t unit) {
  const std::size_t span = unit * static_cast<std::size_t>(shape.stride);
  const std::size_t units = shape.volume_bytes / (arrays * element * span);
  if (units < static_cast<std::size_t>(shape.threads))
    throw Absent("a volume of " + size_text(shape.volume_bytes) + " has fewer units than threads at stride " +
                 std::to_string(shape.stride));
  return units * span;
}

std::vector<std::uint32_t> shuffled(std::size_t n, std::uint64_t seed) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  for (std::size_t i = n; i > 1; --i) std::swap(order[i - 1], order[scramble(seed + i) % i]);
  return order;
}

Tally& tally() {
  thread_local Tally thread_tally;
  return thread_tally;
}

}  // namespace mm::workloads
