#pragma once
/// The ranks of a run: their hosts and CPUs, their synchronised clocks, and collective decisions.
#include <mpi.h>
#include <sched.h>

#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/harness/instrument.hpp"
#include "base/json.hpp"

namespace mm::mpi {

/// Returns the kind of the MPI library, and its name and version: "openmpi", "Open MPI 4.1.4". May be called before
/// MPI_Init.
std::pair<std::string, std::string> library_of();

/// Throws Failure with the library's error message unless the call succeeded.
void check(int status, const char* call);

/// Allocates page-aligned memory, as MPI libraries do: alignment determines the speed of a copy, and protocols must not
/// differ in it.
template <class T>
struct OnPages {
  using value_type = T;
  OnPages() = default;
  template <class Other>
  explicit OnPages(const OnPages<Other>&) {}
  T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kPage)); }
  void deallocate(T* memory, std::size_t) { ::operator delete(memory, kPage); }
  bool operator==(const OnPages&) const { return true; }

 private:
  static constexpr std::align_val_t kPage{4096};
};
using Words = std::vector<std::uint64_t, OnPages<std::uint64_t>>;

/// A rank, as all ranks know it.
struct Member {
  std::string host;     ///< hostname; network namespaces of one Linux kernel have different hostnames
  std::string boot_id;  ///< ID of the Linux kernel: hosts that are namespaces of one kernel share its CPUs and memory
  int pid = 0;          ///< in that host's PID namespace
  int cpu = -1;         ///< at start
  int node = 0;         ///< index of the rank's memory-sharing group, according to the library
  std::vector<int> allowed;
};

class World {
 public:
  static World& get();

  /// Initialises MPI, gathers the members and measures clock offsets. Collective. Only rank 0 writes output afterwards.
  /// `threaded`: ranks will have threads, of which only the first calls MPI.
  void start(bool threaded);
  bool started() const { return started_; }
  /// Throws UsageError if the job does not match `--ranks` or `--mpi`. Otherwise adds the ranks to the run's header.
  void check_request(Run& run) const;
  /// Finalises MPI or, if one rank failed, aborts the job. Returns the job's status.
  int end(int status);

  /// Registers a function for end(), which is called before MPI_Finalize in reverse order: for libraries started
  /// besides MPI.
  void at_end(void (*finish)()) { finish_.push_back(finish); }

  int rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm all() const { return MPI_COMM_WORLD; }
  const std::vector<Member>& members() const { return members_; }
  const std::string& library() const { return library_; }  ///< "Open MPI 4.1.4"
  const std::string& kind() const { return kind_; }        ///< "openmpi", "mpich", …
  /// Returns the CPUs for the threads of this rank. Ranks of a host that may use the same CPUs divide them, so that
  /// each rank gets adjacent CPUs. If `threads` is 0, a rank gets as many threads as there are CPUs for. If there are
  /// fewer CPUs than threads, CPUs repeat, and the ranks are oversubscribed. Every rank must request the same number.
  /// Collective.
  std::vector<int> divide_cpus(int threads);
  /// Returns whether a host has more ranks than CPUs available to them. A spinning rank then blocks another.
  bool oversubscribed() const { return oversubscribed_; }
  double offset_s() const { return offset_s_; }        ///< this rank's clock minus rank 0's
  double uncertain_s() const { return uncertain_s_; }  ///< maximum over ranks of half the round trip

  /// Returns the time in s by rank 0's clock.
  double now_s() const { return seconds(ticks()) - offset_s_; }

  /// Starts all ranks at once: at an agreed time if each has a CPU, otherwise by a barrier. Calls `last` just before.
  /// Returns false on a rank that was too late for the agreed time. Collective.
  bool start_together(const std::function<void()>& last = [] {});
  /// Sets how far ahead the next start is agreed: further if a rank was late, otherwise slightly less. The same on all
  /// ranks.
  void adjust_lead(bool late);

  /// Returns the bytes that each rank may still allocate: the minimum over ranks of an equal share of their host's
  /// memory. Collective.
  std::size_t available_bytes();
  /// Makes an object on all ranks or on none. If one rank fails, all ranks throw Absent with its error, and the objects
  /// of the other ranks are leaked, because their destructors may be collective. Collective.
  template <class Made>
  Made all_or_none(const std::function<Made()>& make) {
    auto object = std::make_unique<Made>();
    const json error = attempt([&] { *object = make(); });
    if (error.is_null()) return std::move(*object);
    (void)object.release();  // NOLINT: see above
    kept_ = true;
    throw Absent(error["reason"].get<std::string>(), error["enable"].get<std::string>());
  }

  /// Like `check`, for a collective call: if it failed on one rank, all ranks throw with that rank's error.
  void check_all(int status, const char* call);

  /// Returns the values of all ranks, in order, on all ranks. Sizes may differ. Collective.
  std::vector<json> gather(const json& mine);
  /// Returns rank 0's value on all ranks. Collective.
  json broadcast(const json& value);

  /// Returns the conditions of every record: ranks, hosts, library, CPUs, transport.
  json conditions() const;
  /// Returns the conditions that stay the same when a run is resumed, for derived metrics.
  json lasting_conditions() const;

 private:
  json attempt(const std::function<void()>& make);
  void find_offsets();
  std::string find_transport();

  bool started_ = false, oversubscribed_ = false;
  bool kept_ = false;  // whether an object was leaked, see all_or_none
  int rank_ = 0, size_ = 1;
  double offset_s_ = 0, uncertain_s_ = 0, lead_s_ = 20e-6;
  std::vector<Member> members_;
  std::vector<void (*)()> finish_;
  std::string library_, kind_, transport_;
};

/// Spins until `condition()` holds. Yields in case there are more ranks than CPUs.
template <class Condition>
inline void wait_until(const Condition& condition) {
  for (int spins = 0; !condition(); ++spins)
    if (spins > 2000) {
      spins = 0;
      sched_yield();
    }
}

/// Like wait_until, for data that other ranks put into a window of this rank.
template <class Condition>
inline void wait_in_window(MPI_Win window, const Condition& condition) {
  wait_until([&] {
    MPI_Win_sync(window);
    if (condition()) return true;
    int ignored = 0;  // some libraries make progress only inside a call
    MPI_Iprobe(MPI_ANY_SOURCE, 999, World::get().all(), &ignored, MPI_STATUS_IGNORE);
    return false;
  });
}

/// Reports a rank's failure in one line and aborts the job, since the other ranks wait for it.
[[noreturn]] void abort_job(const std::string& message);

}  // namespace mm::mpi
