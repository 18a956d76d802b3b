#include "kernel.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "access.hpp"
#include "error.hpp"
#include "memory.hpp"

namespace mm::workloads {
namespace {

std::vector<Entry>& registry() {
  static std::vector<Entry> all;
  return all;
}

std::string size_text(std::size_t bytes) { return std::to_string(bytes) + " B"; }

}  // namespace

Memory::Memory(int threads, Everyone everyone) : threads_(threads), everyone_(std::move(everyone)) {}

Memory::~Memory() {
  for (const auto& [at, bytes] : maps_) munmap(at, bytes);
}

void* Memory::take_bytes(std::size_t bytes) {
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  // A page more, and arrays that start at different lines of their pages: equal places in several arrays would
  // compete for the same sets of the caches.
  const std::size_t skew = (maps_.size() % 15 + 1) * 2 * kLine;
  const std::size_t whole = (bytes + skew + page - 1) / page * page;
  if (const std::size_t room = memory_available(); whole > room)
    throw Absent("it needs " + size_text(whole) + " and " + size_text(room) + " may be had");
  void* const map = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) throw Absent("the operating system does not grant " + size_text(whole) + " of memory");
  maps_.emplace_back(map, whole);
  bytes_ += whole;
  auto* const first = static_cast<char*>(map);
  everyone_([&](int rank) {
    const auto part = [&](int r) {
      return whole / page * static_cast<std::size_t>(r) / static_cast<std::size_t>(threads_);
    };
    for (std::size_t p = part(rank); p < part(rank + 1); ++p) *reinterpret_cast<volatile char*>(first + p * page) = 0;
  });
  return first + skew;
}

void add_kernel(const Info& info, Maker plain, Maker counted) {
  std::vector<Entry>& all = registry();
  const auto at = std::lower_bound(all.begin(), all.end(), info.name,
                                   [](const Entry& e, const std::string& name) { return e.info.name < name; });
  all.insert(at, Entry{info, plain, counted});
}

const std::vector<Entry>& kernels() { return registry(); }

const Entry& kernel(const std::string& name) {
  for (const Entry& e : registry())
    if (e.info.name == name) return e;
  throw UsageError("kernel", "found " + quote(name), "meshmark list kernels names them");
}

std::unique_ptr<Kernel> make(const Entry& entry, const Shape& shape, Memory& memory, bool counted) {
  const Info& info = entry.info;
  if (shape.threads < info.least_threads || shape.threads > info.most_threads)
    throw Absent(info.name + " takes " + std::to_string(info.least_threads) + " threads or more" +
                 (info.most_threads < 1 << 16 ? ", " + std::to_string(info.most_threads) + " at most" : ""));
  if (info.sized && shape.volume_bytes < info.least_bytes)
    throw Absent(info.name + " needs a volume of " + size_text(info.least_bytes) + " or more");
  Shape fitting = shape;
  fitting.volume_bytes = std::min(shape.volume_bytes, info.most_bytes);
  if (!info.strided) fitting.stride = 1;
  return (counted ? entry.counted : entry.plain)(fitting, memory);
}

std::size_t fit(const Shape& shape, std::size_t arrays, std::size_t element, std::size_t unit) {
  const std::size_t span = unit * static_cast<std::size_t>(shape.stride);
  const std::size_t units = shape.volume_bytes / (arrays * element * span);
  if (units < static_cast<std::size_t>(shape.threads))
    throw Absent("a volume of " + size_text(shape.volume_bytes) +
                 " holds fewer units than there are threads at stride " + std::to_string(shape.stride));
  return units * span;
}

std::vector<std::uint32_t> shuffled(std::size_t n, std::uint64_t seed) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  for (std::size_t i = n; i > 1; --i) std::swap(order[i - 1], order[scramble(seed + i) % i]);
  return order;
}

Tally& tally() {
  thread_local Tally mine;
  return mine;
}

}  // namespace mm::workloads
