#pragma once
/// Who holds which CPUs of this node. A folder, no daemon: one file a reservation, on which every process of the job
/// keeps a shared lock (an open file that its children inherit); the kernel drops the lock with the last of them, so a
/// dead owner's reservation is one that can be locked exclusively, and whoever meets it removes it.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "types.hpp"

namespace mm::place {

struct Reservation {
  std::string path;
  int pid = 0;
  std::string user, command, policy, job;  ///< job: key that the ranks of one launch share, or ""
  double since_s = 0;                      ///< seconds since the epoch
  Layout layout;
  bool exclusive = false;
  int joined = 0;      ///< ranks that took their part so far
  std::string cgroup;  ///< folder to remove with the reservation, or ""
};

/// Default folder: $MESHMARK_LEDGER, else /run/lock/meshmark (world-writable, sticky), else /dev/shm/meshmark-claims.
std::string ledger_folder();

class Ledger {
 public:
  explicit Ledger(std::string folder = ledger_folder());
  /// Living reservations, oldest first; those of the dead are removed on the way (and their cgroups). Failure, with the
  /// remedy, where a living reservation cannot be read.
  std::vector<Reservation> reservations();
  static Occupancy occupancy(const std::vector<Reservation>& reservations);

  /// Decides under the folder's lock: `decide` gets what is taken and answers with a placement (or throws Busy, then,
  /// with wait_s > 0, it is asked again as soon as something changed, first come first served, until so long has
  /// passed; infinity: for ever). The reservation's file is journalled before this returns, and its lock is held by a
  /// file descriptor that survives exec.
  struct Held {
    Reservation reservation;
    Placement placement;
    int lock_fd = -1;
  };
  Held reserve(const Reservation& as, const std::function<Placement(const Occupancy&)>& decide, double wait_s);
  /// The reservation of this job (see Reservation::job) if a rank before us made it: shares its lock. nullopt where
  /// there is none.
  std::optional<Held> join(const std::string& job);
  /// Records the cgroup of a reservation, so that it goes with it.
  void set_cgroup(Held& held, const std::string& folder);
  void release(Held& held);  ///< at once, rather than with the process

 private:
  std::string folder_;
};

/// meshmark-place slots …
int slots_verb(int argc, char** argv);

}  // namespace mm::place
