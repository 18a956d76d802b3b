#pragma once
/// The ledger: which process holds which CPUs of this node. It is a folder without a daemon, with one file per
/// reservation. Every process of the job keeps a shared lock on the file (through an open descriptor that its children
/// inherit), which the Linux kernel releases with the last of them. A reservation that can be locked exclusively is
/// therefore dead, and any process that finds one removes it.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "place/types.hpp"

namespace mm::place {

struct Reservation {
  std::string path;
  int pid = 0;
  std::string user, command, policy, job;  ///< job: key shared by the ranks of one launch, or ""
  double since_s = 0;                      ///< seconds since the epoch
  Layout layout;
  bool exclusive = false;
  int joined = 0;      ///< ranks that have taken their part
  std::string cgroup;  ///< folder to remove with the reservation, or ""
};

/// Default folder: $MESHMARK_LEDGER, else /run/lock/meshmark (world-writable, sticky), else /dev/shm/meshmark-claims.
std::string ledger_folder();

class Ledger {
 public:
  explicit Ledger(std::string folder = ledger_folder());
  /// Living reservations, oldest first; removes dead ones and their cgroups. Throws Failure, with the remedy, if a
  /// living reservation cannot be read.
  std::vector<Reservation> reservations();
  static Occupancy occupancy(const std::vector<Reservation>& reservations);

  /// Calls `decide` with the occupancy under the folder's lock; it returns a placement or throws Busy. With wait_s > 0,
  /// a busy decision is repeated whenever the ledger changes, first come first served, until that time has passed
  /// (infinity: without limit). The reservation's file is written before this returns; its lock belongs to a descriptor
  /// that survives exec.
  struct Held {
    Reservation reservation;
    Placement placement;
    int lock_fd = -1;
  };
  Held reserve(const Reservation& as, const std::function<Placement(const Occupancy&)>& decide, double wait_s);
  /// Joins the reservation of this job (see Reservation::job) by sharing its lock; returns nullopt if no earlier rank
  /// has created one.
  std::optional<Held> join(const std::string& job);
  /// Records the cgroup of a reservation, so that both are removed together.
  void set_cgroup(Held& held, const std::string& folder);
  void release(Held& held);  ///< releases the reservation now, rather than when the process ends

 private:
  std::string folder_;
};

/// meshmark-place slots …
int slots_verb(int argc, char** argv);

}  // namespace mm::place
