/// Interaction of threads through shared, written lines: false sharing, atomics, messages, barriers.
///
/// Counts cover the whole team. The number of reads while waiting is random, so a wait counts as one load. Lines are
/// the minimum that must move: once per unit to each thread that uses them.
#include <sched.h>

#include <atomic>
#include <type_traits>

#include "workloads/access.hpp"

namespace mm::workloads {
namespace {

using u64 = std::uint64_t;

constexpr std::size_t kUnits = 256;  // per pass: few, as each may take a time slice if CPUs are oversubscribed
constexpr std::size_t kPerLine = kLine / sizeof(u64);

/// Accesses that other threads observe, which are counted if `A` counts. They are relaxed, except for accesses that
/// pass data on.
template <class A>
struct SharedAccess {
  static constexpr bool kCounts = std::is_same_v<A, Counted>;
  template <class T>
  static void store(T* at, T value, std::memory_order order = std::memory_order_relaxed) {
    if constexpr (kCounts) tally().store(at, sizeof(T));
    std::atomic_ref(*at).store(value, order);
  }
  template <class T>
  static T load(T* at) {
    if constexpr (kCounts) tally().load(at, sizeof(T));
    return std::atomic_ref(*at).load(std::memory_order_relaxed);
  }
  /// Adds in one atomic operation.
  static u64 add(u64* at, u64 value) {
    if constexpr (kCounts) {
      tally().load(at, sizeof(u64));
      tally().store(at, sizeof(u64));
      tally().counts.int_ops += 1;
    }
    return std::atomic_ref(*at).fetch_add(value, std::memory_order_acq_rel);
  }
  /// Waits until the value is at least `min`, and returns it. Yields after a while, since the thread that is awaited
  /// may need the CPU.
  static u64 await(u64* at, u64 min) {
    if constexpr (kCounts) tally().load(at, sizeof(u64));
    const std::atomic_ref word(*at);
    for (int spins = 0;;) {
      if (const u64 value = word.load(std::memory_order_acquire); value >= min) return value;
      if (spins < kSpins) {
        ++spins;
#if defined(__x86_64__)
        _mm_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
      } else {
        sched_yield();
      }
    }
  }

 private:
  static constexpr int kSpins = 200;  // a few microseconds: longer than any transfer of a line
};

/// A team's work: `lines` shared lines, and the number of units that each thread has done.
template <class A>
class Sharing : public Kernel {
 public:
  Sharing(const Shape& shape, Memory& memory, std::size_t lines)
      : threads_(static_cast<std::size_t>(shape.threads)),
        words_(memory.take<u64>(lines * kPerLine)),
        n_(lines * kPerLine),
        done_(threads_) {}
  std::size_t units() const override { return kUnits; }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(words_, n_)); }

 protected:
  struct alignas(kLine) Done {
    u64 units = 0;
  };
  u64* line(std::size_t k) const { return words_ + k * kPerLine; }
  u64& done(int thread) { return done_[static_cast<std::size_t>(thread)].units; }
  /// Compares every word with expected_word(line, word).
  template <class Expected>
  std::string check(const Expected& expected_word) const {
    for (std::size_t i = 0; i < n_; ++i)
      if (const u64 expected = expected_word(i / kPerLine, i % kPerLine); words_[i] != expected)
        return "word " + std::to_string(i) + " is " + std::to_string(words_[i]) + ", not " + std::to_string(expected);
    return "";
  }
  /// Returns the counts of the team from operations, loads and stores of words of 8 B, and lines.
  static Counts team(double int_ops, double loads, double stores, double lines, double lines_written) {
    Counts c;
    c.int_ops = int_ops;
    c.load_bytes = 8 * loads;
    c.store_bytes = 8 * stores;
    c.line_read_bytes = kLine * lines;
    c.line_write_bytes = kLine * lines_written;
    return c;
  }
  std::size_t threads_;
  u64* words_;
  std::size_t n_;
  std::vector<Done> done_;
};

/// Each thread increments a separate word of a shared line.
template <class A>
struct FalseSharing final : Sharing<A> {
  FalseSharing(const Shape& shape, Memory& memory) : Sharing<A>(shape, memory, lines_for(shape.threads)) {}
  Counts counts() const override {
    const auto t = static_cast<double>(this->threads_);
    return this->team(kAdds * t, kAdds * t, kAdds * t, t, t);
  }
  void run(std::size_t first, std::size_t last, int thread) override {
    // Threads are assigned to lines round-robin, so that no thread has a line of its own.
    const std::size_t t = static_cast<std::size_t>(thread), lines = this->n_ / kPerLine;
    u64* const counter = this->line(t % lines) + t / lines;
    using Word = typename A::template Value<u64>;
    for (std::size_t u = first; u < last; ++u) {
      for (std::size_t i = 0; i < kAdds; ++i)
        SharedAccess<A>::store(counter, bare(Word(SharedAccess<A>::load(counter)) + Word(1)));  // not in a register
      A::end_unit();
    }
    this->done(thread) += last - first;
  }
  std::string verify() const override {
    const std::size_t lines = this->n_ / kPerLine;
    return this->check([&](std::size_t line, std::size_t word) {
      const std::size_t t = word * lines + line;
      return t < this->threads_ ? kAdds * this->done_[t].units : 0;
    });
  }

 private:
  static constexpr std::size_t kAdds = 32;
  static std::size_t lines_for(int threads) { return (static_cast<std::size_t>(threads) + kPerLine - 1) / kPerLine; }
};

/// All threads add to one word.
template <class A>
struct ContendedAtomics final : Sharing<A> {
  ContendedAtomics(const Shape& shape, Memory& memory) : Sharing<A>(shape, memory, 1) {}
  Counts counts() const override {
    const auto t = static_cast<double>(this->threads_);
    return this->team(kAdds * t, kAdds * t, kAdds * t, t, t);
  }
  void run(std::size_t first, std::size_t last, int thread) override {
    u64* const sum = this->line(0);
    for (std::size_t u = first; u < last; ++u) {
      for (std::size_t i = 0; i < kAdds; ++i) SharedAccess<A>::add(sum, 1);
      A::end_unit();
    }
    this->done(thread) += last - first;
  }
  std::string verify() const override {
    u64 expected = 0;
    for (const auto& thread_units : this->done_) expected += kAdds * thread_units.units;
    return this->check([&](std::size_t, std::size_t word) { return word == 0 ? expected : 0; });
  }

 private:
  static constexpr std::size_t kAdds = 16;
};

/// One line passes back and forth: thread 0 makes its word odd, and thread 1 makes it even again.
template <class A>
struct LinePingPong final : Sharing<A> {
  LinePingPong(const Shape& shape, Memory& memory) : Sharing<A>(shape, memory, 1) {}
  Counts counts() const override { return this->team(2, 2, 2, 2, 2); }
  void run(std::size_t first, std::size_t last, int thread) override {
    using Word = typename A::template Value<u64>;
    u64* const ball = this->line(0);
    u64& rounds = this->done(thread);
    for (std::size_t u = first; u < last; ++u) {
      const Word value = SharedAccess<A>::await(ball, 2 * rounds + static_cast<u64>(thread));
      SharedAccess<A>::store(ball, bare(value + Word(1)), std::memory_order_release);
      ++rounds;
      A::end_unit();
    }
  }
  std::string verify() const override {
    return this->check([&](std::size_t, std::size_t word) { return word == 0 ? 2 * this->done_[1].units : 0; });
  }
};

/// Thread 0 fills a ring with whole lines, and thread 1 sums the lines that it takes (Lamport's single-producer,
/// single-consumer queue). Line 0 contains the number of lines put, line 1 the number of lines taken and the sum; then
/// follows the ring.
template <class A>
struct ProducerConsumerRing final : Sharing<A> {
  ProducerConsumerRing(const Shape& shape, Memory& memory) : Sharing<A>(shape, memory, 2 + kSlots) {}
  /// The producer waits for space, computes and stores a line of words, and updates its count. The consumer waits for
  /// the words, loads them, adds them to its sum, and updates its count.
  Counts counts() const override {
    return this->team(2 * kPerLine, 1 + (1 + kPerLine + 1), (kPerLine + 1) + (1 + 1), 3 + 3, 2 + 1);
  }
  void run(std::size_t first, std::size_t last, int thread) override {
    if (thread == 0)
      produce(last - first);
    else
      consume(last - first);
  }
  std::string verify() const override {
    const u64 head = this->done_[0].units, tail = this->done_[1].units, words = tail * kPerLine;
    // Either `words` or `words - 1` is even: halve that factor, so that the product wraps around as the sum did.
    const u64 pairs = words % 2 ? (words - 1) / 2 * words : words / 2 * (words - 1);
    return this->check([&](std::size_t line, std::size_t word) -> u64 {
      if (line == 0) return word == 0 ? head : 0;
      if (line == 1) return word == 0 ? tail : word == 1 ? kFactor * pairs : 0;
      const u64 slot = line - 2;
      if (slot >= head) return 0;
      const u64 latest = (head - 1 - slot) / kSlots * kSlots + slot;
      return kFactor * (latest * kPerLine + word);
    });
  }

 private:
  using Word = typename A::template Value<u64>;
  static constexpr u64 kSlots = 32, kFactor = 0x9e3779b97f4a7c15u;
  void produce(std::size_t units) {
    u64 *const head = this->line(0), *const tail = this->line(1), *const ring = this->line(2);
    u64& n = this->done(0);
    for (; units != 0; --units) {
      SharedAccess<A>::await(tail, n < kSlots ? 0 : n - kSlots + 1);
      const typename A::template Array<u64> slot{ring + n % kSlots * kPerLine};
      for (std::size_t k = 0; k < kPerLine; ++k) slot[k] = Word(n * kPerLine + k) * Word(kFactor);
      SharedAccess<A>::store(head, ++n, std::memory_order_release);
      A::end_unit();
    }
  }
  void consume(std::size_t units) {
    u64 *const head = this->line(0), *const tail = this->line(1), *const ring = this->line(2);
    const typename A::template Array<u64> totals{tail};
    u64& n = this->done(1);
    for (; units != 0; --units) {
      SharedAccess<A>::await(head, n + 1);
      const typename A::template Array<u64> slot{ring + n % kSlots * kPerLine};
      Word sum = totals[1];
      for (std::size_t k = 0; k < kPerLine; ++k) sum += slot[k];
      totals[1] = sum;
      SharedAccess<A>::store(tail, ++n, std::memory_order_release);
      A::end_unit();
    }
  }
};

/// A barrier, which the last thread to arrive opens. Each thread increments its word before the barrier, and verifies
/// its neighbour's word after it. Line 0 counts arrivals and line 1 openings; then follows one line per thread.
template <class A>
struct Barrier final : Sharing<A> {
  Barrier(const Shape& shape, Memory& memory)
      : Sharing<A>(shape, memory, 2 + static_cast<std::size_t>(shape.threads)) {}
  Counts counts() const override {
    const auto t = static_cast<double>(this->threads_);
    // Each thread: its word and one addition; the arrival, and whether it is the last; the opening; the neighbour's
    // word and its comparison.
    return this->team(4 * t, 4 * t, 2 * t + 1, 4 * t, 2 * t + 1);
  }
  void run(std::size_t first, std::size_t last, int thread) override {
    using Word = typename A::template Value<u64>;
    const u64 threads = this->threads_, me = static_cast<u64>(thread);
    u64 *const arrivals = this->line(0), *const openings = this->line(1);
    u64 *const counter = this->line(2 + me), *const neighbours = this->line(2 + (me + 1) % threads);
    u64& times = this->done(thread);
    for (std::size_t u = first; u < last; ++u) {
      ++times;
      SharedAccess<A>::store(counter, bare(Word(SharedAccess<A>::load(counter)) + Word(1)));
      if (Word(SharedAccess<A>::add(arrivals, 1)) == Word(times * threads - 1))
        SharedAccess<A>::store(openings, times, std::memory_order_release);
      SharedAccess<A>::await(openings, times);
      if (Word(SharedAccess<A>::load(neighbours)) < Word(times))
        counter[1] = times;  // an error, which verify() reports
      A::end_unit();
    }
  }
  std::string verify() const override {
    const u64 times = this->done_[0].units;
    return this->check([&](std::size_t line, std::size_t word) {
      return word != 0 ? 0 : line == 0 ? times * this->threads_ : times;
    });
  }
};

const Register<FalseSharing> false_sharing{{.name = "false_sharing",
                                            .kind = "sharing",
                                            .summary = "threads increment different words of one line",
                                            .source = "perf c2c",
                                            .parity = true,
                                            .sized = false,
                                            .team = true,
                                            .min_threads = 2,
                                            .stands_for = "u64"}};
const Register<ContendedAtomics> contended_atomics{{.name = "contended_atomics",
                                                    .kind = "sharing",
                                                    .summary = "all threads add to one word",
                                                    .source = "RAJAPerf ATOMIC; EPCC syncbench",
                                                    .sized = false,
                                                    .team = true,
                                                    .min_threads = 2,
                                                    .stands_for = "u64"}};
const Register<LinePingPong> line_ping_pong{{.name = "line_ping_pong",
                                             .kind = "sharing",
                                             .summary = "one line passes back and forth between two threads",
                                             .source = "core-to-core latency",
                                             .sized = false,
                                             .team = true,
                                             .min_threads = 2,
                                             .max_threads = 2,
                                             .stands_for = "u64"}};
const Register<ProducerConsumerRing> producer_consumer_ring{
    {.name = "producer_consumer_ring",
     .kind = "sharing",
     .summary = "one thread passes lines to another through a ring of 32",
     .source = "Lamport's queue (SPSC)",
     .sized = false,
     .team = true,
     .min_threads = 2,
     .max_threads = 2,
     .stands_for = "u64"}};
const Register<Barrier> barrier{{.name = "barrier",
                                 .kind = "sharing",
                                 .summary = "all threads wait for each other",
                                 .source = "EPCC syncbench BARRIER",
                                 .sized = false,
                                 .team = true,
                                 .min_threads = 2,
                                 .stands_for = "u64"}};

}  // namespace
}  // namespace mm::workloads
