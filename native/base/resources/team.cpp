#include "base/resources/team.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/options/options.hpp"

namespace mm {
namespace {

void relax() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

std::vector<int> allowed_cpus() {
  // A fixed cpu_set_t ends at 1024 CPUs, so the mask grows as needed.
  for (int max = 1024; max <= 1 << 17; max *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(max));
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(max));
    std::vector<int> cpus;
    const bool ok = sched_getaffinity(0, bytes, set) == 0;
    for (int i = 0; ok && i < max; ++i)
      if (CPU_ISSET_S(static_cast<std::size_t>(i), bytes, set)) cpus.push_back(i);
    CPU_FREE(set);
    if (ok) return cpus;
  }
  throw Failure("cannot read the CPU affinity of this process");
}

void bind_process(const std::vector<int>& cpus) {
  const auto max = static_cast<std::size_t>(std::max(1024, *std::max_element(cpus.begin(), cpus.end()) + 1));
  cpu_set_t* set = CPU_ALLOC(max);
  const std::size_t bytes = CPU_ALLOC_SIZE(max);
  CPU_ZERO_S(bytes, set);
  for (int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set);
  const int rc = sched_setaffinity(0, bytes, set);
  const int error = errno;
  CPU_FREE(set);
  if (rc != 0)
    throw Failure((cpus.size() == 1 ? "cannot bind to CPU " : "cannot bind to CPUs ") + cpu_list(cpus) + ": " +
                  std::strerror(error));
}

void pin(int cpu) {
  bind_process({cpu});  // sched_setaffinity(0) binds the calling thread; threads created later inherit the mask
  if (sched_getcpu() != cpu) throw Failure("bound to cpu " + std::to_string(cpu) + " but running elsewhere");
}

struct Team::State {
  std::vector<std::thread> threads;
  std::vector<pthread_t> handles;
  std::vector<Span> spans;
  const std::function<void(int)>* work = nullptr;
  std::atomic<std::uint32_t> generation{0};  // sleeping members wait for a change
  std::atomic<int> arrived{0}, done{0};
  std::atomic<bool> stop{false};
  std::mutex error_lock;
  std::exception_ptr error;
  bool distinct = true, real_time = false;

  void member(int rank, int cpu, int size, std::atomic<int>& ready);
  void end();
};

void Team::State::end() {
  stop = true;
  ++generation;
  generation.notify_all();
  for (std::thread& t : threads) t.join();
  threads.clear();
}

void Team::State::member(int rank, int cpu, int size, std::atomic<int>& ready) {
  try {
    pin(cpu);
  } catch (...) {
    const std::lock_guard lock(error_lock);
    error = std::current_exception();
  }
  ready.fetch_add(1);
  ready.notify_all();
  for (std::uint32_t last_generation = 0;;) {
    generation.wait(last_generation);
    last_generation = generation.load();
    if (stop.load()) return;
    Span& span = spans[static_cast<std::size_t>(rank)];
    rusage before{}, after{};
    getrusage(RUSAGE_THREAD, &before);
    // A barrier releases all members together. Members that share a CPU must not spin for long.
    arrived.fetch_add(1);
    for (int spins = 0; arrived.load(std::memory_order_acquire) < size; ++spins) {
      relax();
      if (!distinct || spins > 1 << 16) sched_yield();
    }
    span.begin = ticks();
    try {
      (*work)(rank);
    } catch (...) {
      const std::lock_guard lock(error_lock);
      error = std::current_exception();
    }
    span.end = ticks();
    getrusage(RUSAGE_THREAD, &after);
    span.moved = sched_getcpu() != cpu;
    span.switched = after.ru_nivcsw - before.ru_nivcsw;
    span.faults = faults_of(after) - faults_of(before);
    if (done.fetch_add(1) + 1 == size) done.notify_all();
  }
}

Team::Team(std::vector<int> cpus) : cpus_(std::move(cpus)), state_(std::make_unique<State>()) {
  State& s = *state_;
  s.spans.resize(cpus_.size());
  s.distinct = std::set<int>(cpus_.begin(), cpus_.end()).size() == cpus_.size();
  std::atomic<int> ready{0};
  s.threads.reserve(cpus_.size());
  s.handles.reserve(cpus_.size());
  try {
    for (int rank = 0; rank < size(); ++rank) {
      s.threads.emplace_back([&s, rank, cpu = cpus_[static_cast<std::size_t>(rank)], n = size(), &ready] {
        s.member(rank, cpu, n, ready);
      });
      s.handles.push_back(s.threads.back().native_handle());
    }
  } catch (...) {
    s.end();  // destroying a joinable thread would terminate the process
    throw;
  }
  for (int n = ready.load(); n < size(); n = ready.load()) ready.wait(n);
  if (s.error) {
    s.end();
    std::rethrow_exception(s.error);
  }
}

Team::~Team() { state_->end(); }

const std::vector<Team::Span>& Team::run(const std::function<void(int)>& work) {
  State& s = *state_;
  s.work = &work;
  s.arrived = 0;
  s.done = 0;
  ++s.generation;
  s.generation.notify_all();
  for (int n = s.done.load(); n < size(); n = s.done.load()) s.done.wait(n);
  if (s.error) {
    const std::exception_ptr error = std::exchange(s.error, nullptr);
    std::rethrow_exception(error);
  }
  return s.spans;
}

const std::vector<Team::Span>& Team::last() const { return state_->spans; }

double Team::elapsed_s() const {
  Ticks begin = ~Ticks{0}, end = 0;
  for (const Span& span : state_->spans) {
    begin = std::min(begin, span.begin);
    end = std::max(end, span.end);
  }
  return seconds(end - begin);
}

bool Team::real_time(bool on) {
  State& s = *state_;
  if (on && !s.distinct) return false;  // a spinning member could starve one on the same CPU
  if (on == s.real_time) return s.real_time;
  sched_param param{};
  param.sched_priority = on ? 10 : 0;
  bool all = true;
  for (pthread_t handle : s.handles)
    all = pthread_setschedparam(handle, on ? SCHED_FIFO : SCHED_OTHER, &param) == 0 && all;
  if (on && !all) {
    param.sched_priority = 0;
    for (pthread_t handle : s.handles) pthread_setschedparam(handle, SCHED_OTHER, &param);
    return false;
  }
  s.real_time = on;
  return on;
}

}  // namespace mm
