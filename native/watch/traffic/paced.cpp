#include "watch/traffic/paced.hpp"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "base/clock.hpp"

namespace mm::watch {
namespace {

constexpr std::size_t kBlock = 32 << 10;
constexpr std::size_t kStreamed = std::size_t{128} << 20;  // exceeds most caches
constexpr std::size_t kFlushed = std::size_t{16} << 20;    // may be small, since no cache retains it

}  // namespace

bool flush_line(const void* line) {
#if defined(__x86_64__)
  _mm_clflush(line);
  return true;
#elif defined(__aarch64__)
  asm volatile("dc civac, %0" ::"r"(line) : "memory");
  return true;
#else
  (void)line;
  return false;
#endif
}

bool can_flush() {
  const int probe = 0;
  return flush_line(&probe);
}

std::shared_ptr<Arena> memory_of_node(int node, bool bound, std::size_t bytes) {
  MemoryRequest request;
  request.bytes = bytes;
  request.pages = Pages::thp;
  request.policy = bound ? Policy::node : Policy::local;
  request.node = bound ? node : -1;
  return Arena::make(request);
}

void nap(double seconds) {
  timespec t{static_cast<time_t>(seconds), static_cast<long>((seconds - std::floor(seconds)) * 1e9)};
  nanosleep(&t, nullptr);
}

std::vector<int> usable_cpus(const Host& host, std::size_t node, const cpu_set_t& allowed) {
  std::vector<int> cpus;
  for (const int cpu : host.cpus)
    if (host.part_of_cpu(cpu) == host.part_of[node] && cpu < CPU_SETSIZE &&
        CPU_ISSET(static_cast<std::size_t>(cpu), &allowed))
      cpus.push_back(cpu);
  return cpus;
}

PacedLoad::PacedLoad(int cpu, int node, bool bound, PacedAccess access)
    : access_(access),
      memory_(memory_of_node(node, bound, access == PacedAccess::read ? kStreamed : kFlushed)),
      thread_([this, cpu] { run(cpu); }) {}

PacedLoad::~PacedLoad() {
  stop_ = true;
  thread_.join();
}

void PacedLoad::run(int cpu) {
  cpu_set_t cpu_mask{};
  CPU_SET(static_cast<std::size_t>(cpu), &cpu_mask);
  sched_setaffinity(0, sizeof cpu_mask, &cpu_mask);
  std::byte* const data = memory_->data();
  const std::size_t bytes = memory_->bytes() / kBlock * kBlock;
  std::size_t offset = 0;
  double current_pace = 0, begin = wall_s(), moved_in_phase = 0;
  while (!stop_) {
    const double pace = pace_;
    const double now = wall_s();
    // A rate that was not reached is not compensated later; only the bytes moved count.
    if (pace != current_pace || now - begin - moved_in_phase / std::max(pace, 1.0) > 1e-3) {
      current_pace = pace;
      begin = now;
      moved_in_phase = 0;
    }
    if (pace <= 0 || moved_in_phase > pace * (now - begin)) continue;
    std::byte* const block = data + offset;
    if (access_ == PacedAccess::write_flushed) {
      std::memset(block, static_cast<int>(offset / kBlock) & 0xff, kBlock);
      asm volatile("" ::"r"(block) : "memory");
    } else {
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < kBlock; i += kLineBytes) {
        std::uint64_t word;
        std::memcpy(&word, block + i, sizeof word);
        sum += word;
      }
      asm volatile("" : "+r"(sum));
    }
    if (access_ != PacedAccess::read)
      for (std::size_t i = 0; i < kBlock; i += kLineBytes) flush_line(block + i);
    offset = (offset + kBlock) % bytes;
    moved_in_phase += kBlock;
    moved_.fetch_add(kBlock, std::memory_order_relaxed);
  }
}

PacedTeam::PacedTeam(const std::vector<int>& cpus, int node, bool bound, PacedAccess access) {
  for (const int cpu : cpus) loads_.push_back(std::make_unique<PacedLoad>(cpu, node, bound, access));
}

void PacedTeam::pace(double bytes_per_s) {
  for (const auto& load : loads_) load->pace(bytes_per_s / static_cast<double>(loads_.size()));
}

double PacedTeam::moved() const {
  double sum = 0;
  for (const auto& load : loads_) sum += load->moved();
  return sum;
}

}  // namespace mm::watch
