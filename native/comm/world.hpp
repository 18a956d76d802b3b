#pragma once
/// The ranks of a run: who and where they are, what time it is among them, and how they agree.
#include <mpi.h>

#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/instrument.hpp"
#include "base/json.hpp"

namespace mm::comm {

/// Throws Failure with the library's own words where a call did not succeed.
void check(int status, const char* call);

/// One rank as the others know it.
struct Member {
  std::string host;  ///< as the kernel names it: hosts in network namespaces of one kernel differ
  int cpu = -1;      ///< where it ran when it was last asked
  int node = 0;      ///< index of its memory-sharing group, as the library sees it
  std::vector<int> allowed;
};

class World {
 public:
  static World& get();

  /// MPI_Init, who is where, and the offsets of the clocks. Collective. Rank 0 alone speaks from now on.
  void start();
  bool started() const { return started_; }
  /// UsageError where the job is not what the words ask for.
  void expect(const Run& run) const;
  /// Ends the message passing; with a status other than 0 of one rank, the whole job.
  void end(int status);

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

  /// All ranks begin at once: by the clock where each has a CPU, else by a barrier. Returns false on a rank that came
  /// too late for the appointed time.
  bool together();

  /// Of every rank, in order; on all ranks. All texts and numbers may differ in length.
  std::vector<json> gather(const json& mine);
  /// Rank 0's.
  json tell(const json& what);

  /// Conditions of every record: ranks, hosts, library, CPUs, transport.
  json conditions() const;

 private:
  void find_offsets();
  std::string find_transport();

  bool started_ = false, oversubscribed_ = false;
  int rank_ = 0, size_ = 1;
  double offset_s_ = 0, uncertain_s_ = 0, lead_s_ = 20e-6;
  std::vector<Member> members_;
  std::vector<void (*)()> finish_;
  std::string library_, kind_, transport_;
};

/// A rank whose part went wrong says so in one line and ends the job, since the others wait for it.
[[noreturn]] void give_up(const std::string& why);

}  // namespace mm::comm
