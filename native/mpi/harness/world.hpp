#pragma once
/// The ranks of a run: who and where they are, what time it is among them, and how they agree.
#include <mpi.h>
#include <sched.h>

#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/instrument.hpp"
#include "base/json.hpp"

namespace mm::mpi {

/// Throws Failure with the library's own words where a call did not succeed.
void check(int status, const char* call);

/// Takes memory that begins on a page, as a library's own does: how the ends of a copy lie decides on its speed, and
/// protocols are to differ by nothing else than what they are.
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

/// One rank as the others know it.
struct Member {
  std::string host;    ///< as the kernel names it: hosts in network namespaces of one kernel differ
  std::string kernel;  ///< which one runs there: hosts that are namespaces of one kernel share its CPUs and memory
  int pid = 0;         ///< as that host numbers it
  int cpu = -1;        ///< where it ran when it was last asked
  int node = 0;        ///< index of its memory-sharing group, as the library sees it
  std::vector<int> allowed;
};

class World {
 public:
  static World& get();

  /// MPI_Init, who is where, and the offsets of the clocks. Collective. Rank 0 alone speaks from now on.
  void start();
  bool started() const { return started_; }
  /// UsageError where the job is not what the words ask for. Else the run's header tells who the ranks are.
  void expect(Run& run) const;
  /// Ends the message passing; with a failure of one rank, the whole job. Returns the job's status.
  int end(int status);

  /// Called before the message passing ends, last first: of libraries that were started beside it.
  void at_end(void (*finish)()) { finish_.push_back(finish); }

  int rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm all() const { return MPI_COMM_WORLD; }
  const std::vector<Member>& members() const { return members_; }
  const std::string& library() const { return library_; }  ///< "Open MPI 4.1.4"
  const std::string& kind() const { return kind_; }        ///< "openmpi", "mpich", …
  /// More ranks on a host than CPUs that they may use: a rank that spins keeps another from its CPU.
  bool oversubscribed() const { return oversubscribed_; }
  double offset_s() const { return offset_s_; }        ///< this rank's clock less rank 0's
  double uncertain_s() const { return uncertain_s_; }  ///< of all offsets, the worst half round trip

  /// s, by rank 0's clock.
  double now_s() const { return seconds(ticks()) - offset_s_; }

  /// All ranks begin at once: by the clock where each has a CPU, else by a barrier. Just before, each does `last`.
  /// Returns false on a rank that came too late for the appointed time.
  bool together(const std::function<void()>& last = [] {});
  /// What came of it, on all ranks alike: the next time is appointed later where one was late, else a little earlier.
  void appoint(bool late);

  /// B that this rank and each other one may still allocate: the least share of what a kernel's ranks have. Collective.
  std::size_t room();
  /// Makes something on all ranks or on none. Where it fails on one, all throw Absent with that rank's words, and what
  /// the others made is kept for ever: to let go of it might need all ranks. Collective.
  template <class Made>
  Made all_or_none(const std::function<Made()>& make) {
    auto made = std::make_unique<Made>();
    const json why = attempt([&] { *made = make(); });
    if (why.is_null()) return std::move(*made);
    (void)made.release();  // NOLINT: see above
    kept_ = true;
    throw Absent(why["reason"].get<std::string>(), why["enable"].get<std::string>());
  }

  /// As `check`, of a call that all ranks make at once: where it failed on one, all throw, with that rank's words.
  void check_all(int status, const char* call);

  /// Of every rank, in order; on all ranks. All texts and numbers may differ in length.
  std::vector<json> gather(const json& mine);
  /// Rank 0's.
  json tell(const json& what);

  /// Conditions of every record: ranks, hosts, library, CPUs, transport.
  json conditions() const;
  /// Those that are the same when the run is resumed, for values that are derived once more then.
  json lasting_conditions() const;

 private:
  json attempt(const std::function<void()>& make);
  void find_offsets();
  std::string find_transport();

  bool started_ = false, oversubscribed_ = false;
  bool kept_ = false;  // what could not be let go of on all ranks
  int rank_ = 0, size_ = 1;
  double offset_s_ = 0, uncertain_s_ = 0, lead_s_ = 20e-6;
  std::vector<Member> members_;
  std::vector<void (*)()> finish_;
  std::string library_, kind_, transport_;
};

/// Spins until `come()`, letting others run where there are more ranks than CPUs.
template <class Condition>
inline void wait_until(const Condition& come) {
  for (int spins = 0; !come(); ++spins)
    if (spins > 2000) {
      spins = 0;
      sched_yield();
    }
}

/// The same for what others put into a window of this rank's.
template <class Condition>
inline void wait_in(MPI_Win window, const Condition& come) {
  wait_until([&] {
    MPI_Win_sync(window);
    if (come()) return true;
    int ignored = 0;  // some libraries move data only inside of a call
    MPI_Iprobe(MPI_ANY_SOURCE, 999, World::get().all(), &ignored, MPI_STATUS_IGNORE);
    return false;
  });
}

/// A rank whose part went wrong says so in one line and ends the job, since the others wait for it.
[[noreturn]] void give_up(const std::string& why);

}  // namespace mm::mpi
