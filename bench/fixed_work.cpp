/// Fixed work on pinned threads, for paired runs with and without a watcher (bench/watch.py slowdown).
///
///     fixed_work triad|chase|gups BYTES CPU…    BYTES: of one array, ring or table of each thread
///
/// Every line of standard input is a number of rounds; the answer is one of JSON: wall time from the common start to
/// the last thread's end, and each thread's CPU time, in s. Memory is bound to its thread by its first touch.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <barrier>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/chase.hpp"
#include "kernels/gups.hpp"
#include "kernels/stream.hpp"

namespace {

double clock_s(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Free {
  void operator()(std::byte* p) const { std::free(p); }
};
using Block = std::unique_ptr<std::byte, Free>;

Block block_of(std::size_t bytes) {
  Block block(static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)));
  std::memset(block.get(), 0, bytes);
  return block;
}

/// What one thread does; a round is some milliseconds of it.
class Work {
 public:
  Work(std::string kind, std::size_t bytes) : kind_(std::move(kind)) {
    if (kind_ == "triad") {
#if defined(__x86_64__)
      triad_ = mm::stream_table("sse2")->streaming[static_cast<std::size_t>(mm::StreamKernel::triad)];
#else
      triad_ = mm::stream_table("neon")->ordinary[static_cast<std::size_t>(mm::StreamKernel::triad)];
#endif
      for (Block& array : arrays_) array = block_of(bytes);
      count_ = bytes / sizeof(double);
    } else {
      arrays_[0] = block_of(bytes);
      if (kind_ == "chase") at_ = mm::make_random_ring(arrays_[0].get(), bytes / 64, 64, 2026);
      count_ = std::bit_floor(bytes / sizeof(std::uint64_t));
    }
  }

  void run(std::uint64_t rounds) {
    for (; rounds != 0; --rounds) {
      if (kind_ == "triad") {
        triad_(doubles(0), doubles(1), doubles(2), count_, 3.0);
      } else if (kind_ == "chase") {
        at_ = mm::walk(at_, 1 << 15);
        asm volatile("" : "+r"(at_));
      } else {
        x_ = mm::update_ahead(reinterpret_cast<std::uint64_t*>(arrays_[0].get()), count_ - 1, x_, 1 << 18);
      }
    }
  }

 private:
  double* doubles(std::size_t i) { return reinterpret_cast<double*>(arrays_[i].get()); }

  std::string kind_;
  Block arrays_[3];
  mm::StreamFunction triad_ = nullptr;
  mm::Link* at_ = nullptr;
  std::uint64_t x_ = 1;
  std::size_t count_ = 0;
};

struct Told {
  double begin = 0, end = 0, cpu = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return std::fputs("fixed_work: triad|chase|gups BYTES CPU…\n", stderr), 2;
  const std::string kind = argv[1];
  const std::size_t bytes = std::strtoull(argv[2], nullptr, 10), threads = static_cast<std::size_t>(argc - 3);
  std::vector<Told> told(threads);
  std::barrier gate(static_cast<std::ptrdiff_t>(threads) + 1);
  std::uint64_t rounds = 0;
  std::vector<std::thread> workers;
  for (std::size_t i = 0; i < threads; ++i)
    workers.emplace_back([&, i] {
      cpu_set_t own;
      CPU_ZERO(&own);
      CPU_SET(static_cast<std::size_t>(std::atoi(argv[3 + i])), &own);
      if (pthread_setaffinity_np(pthread_self(), sizeof own, &own) != 0) {
        std::fprintf(stderr, "fixed_work: cannot run on CPU %s\n", argv[3 + i]);
        std::exit(1);
      }
      Work work(kind, bytes);
      while (true) {
        gate.arrive_and_wait();
        if (rounds == 0) return;
        told[i].begin = clock_s(CLOCK_MONOTONIC);
        const double cpu = clock_s(CLOCK_THREAD_CPUTIME_ID);
        work.run(rounds);
        told[i].cpu = clock_s(CLOCK_THREAD_CPUTIME_ID) - cpu;
        told[i].end = clock_s(CLOCK_MONOTONIC);
        gate.arrive_and_wait();
      }
    });
  for (std::string line; std::getline(std::cin, line);) {
    rounds = std::strtoull(line.c_str(), nullptr, 10);
    if (rounds == 0) break;
    gate.arrive_and_wait();
    gate.arrive_and_wait();
    double begin = told[0].begin, end = 0;
    std::string cpus;
    for (const Told& t : told) {
      begin = std::min(begin, t.begin);
      end = std::max(end, t.end);
      cpus += (cpus.empty() ? "" : ",") + std::to_string(t.cpu);
    }
    std::printf("{\"wall_s\":%.9f,\"cpu_s\":[%s]}\n", end - begin, cpus.c_str());
    std::fflush(stdout);
  }
  rounds = 0;
  gate.arrive_and_wait();
  for (std::thread& thread : workers) thread.join();
}
