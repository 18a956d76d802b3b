#include "place/ledger/ledger.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "place/command.hpp"
#include "place/ledger/folder.hpp"
#include "place/ledger/format.hpp"
#include "place/ledger/queue.hpp"
#include "place/policy/policy.hpp"

namespace mm::place {

using namespace ledger;

namespace {

constexpr int kHighFd = 512;  // scripts redirect small descriptors, which would release the lock

/// Removes the cgroup of a dead reservation. Returns false if it still contains processes, which have closed their
/// descriptors but still use the CPUs. A reservation may come from another user: only an empty cgroup of our own user
/// can be removed.
bool remove_cgroup(const std::string& path, uid_t owner) {
  const std::size_t slash = path.rfind('/');
  if (path.empty() || path[0] != '/' || path.find("/../") != std::string::npos ||
      path.compare(slash + 1, 9, "meshmark-") != 0)
    return true;
  struct stat status{};
  struct statfs system{};
  if (lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != owner ||
      statfs(path.c_str(), &system) != 0 ||
      (system.f_type != CGROUP_SUPER_MAGIC && system.f_type != CGROUP2_SUPER_MAGIC))
    return true;
  return rmdir(path.c_str()) == 0 || errno != EBUSY;
}

/// Returns the living reservations; removes the dead ones and the tickets of dead processes. Requires the folder's
/// lock.
std::vector<Reservation> scan(const Folder& folder) {
  remove_dead_tickets(folder);
  std::vector<Reservation> living;
  const std::string boot = boot_id();
  for (const std::string& name : names_in(folder, "claim-")) {
    const auto entry = open_entry(folder, name);
    if (!entry) continue;
    const bool ended = dead(*entry);
    Reservation reservation;
    std::string entry_boot, error;
    try {
      reservation = parse_reservation(read_bounded(entry->fd.get()), entry_boot);
    } catch (const Failure& e) {
      error = e.what();
    }
    reservation.path = folder.file(name);
    reservation.user = std::to_string(entry->status.st_uid);  // from the file's owner: the text could name any user
    const bool foreign = error.empty() && entry_boot != boot;
    if (ended && (foreign || remove_cgroup(reservation.cgroup, entry->status.st_uid))) {
      if (!error.empty())
        warn("removed " + reservation.path + ", which is unreadable and has no owner any more: " + error);
      if (foreign) warn("removed " + reservation.path + ", which is from another boot");
      unlinkat(folder.fd.get(), name.c_str(), 0);  // not permitted for other users' files: they or root remove those
      continue;
    }
    if (!error.empty())
      throw Failure("ledger: " + reservation.path + " is held by " + holder_of(entry->fd.get()) +
                    " and cannot be read (" + error + "); end that process or remove the file");
    if (foreign)
      throw Failure("ledger: " + reservation.path + " is from another boot, yet locked: " + folder.path +
                    " is shared by several nodes; set MESHMARK_LEDGER to a local folder");
    living.push_back(std::move(reservation));
  }
  std::stable_sort(living.begin(), living.end(),
                   [](const Reservation& a, const Reservation& b) { return a.since_s < b.since_s; });
  return living;
}

/// Returns a descriptor with the same lock that a shell's redirections do not reach and that survives exec.
int keep(int fd) {
  int high = fcntl(fd, F_DUPFD, kHighFd);
  if (high < 0) high = fcntl(fd, F_DUPFD, 64);
  if (high < 0) throw Failure("ledger: cannot keep the reservation open: " + errno_text());
  return high;
}

/// Joins the reservation of an earlier rank of the same launch and user.
std::optional<Ledger::Held> join_in(const std::vector<Reservation>& reservations, const std::string& job) {
  for (const Reservation& reservation : reservations) {
    if (job.empty() || reservation.job != job || reservation.user != std::to_string(geteuid())) continue;
    const Fd fd(open(reservation.path.c_str(), O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC));
    if (!fd || flock(fd.get(), LOCK_SH | LOCK_NB) != 0)
      throw Failure("ledger: cannot join " + reservation.path + ": " + errno_text());
    append(fd.get(), {{"joined", getpid()}}, reservation.path);
    Ledger::Held held{reservation, {}, keep(fd.get())};
    held.reservation.joined += 1;
    held.placement.layout = reservation.layout;
    held.placement.why = "a part of the reservation by the first rank of its launch";
    return held;
  }
  return std::nullopt;
}

/// Returns the reservations of others. A command inside a placed one runs within that reservation, which is therefore
/// ignored.
std::vector<Reservation> of_others(const std::vector<Reservation>& reservations) {
  const char* const claim = std::getenv("MESHMARK_CLAIM");
  std::vector<Reservation> others;
  for (const Reservation& reservation : reservations)
    if (claim == nullptr || reservation.path != claim) others.push_back(reservation);
  return others;
}

}  // namespace

std::string ledger_folder() {
  if (const char* configured = std::getenv("MESHMARK_LEDGER"); configured != nullptr && *configured != '\0')
    return configured;
  constexpr const char* kFolders[] = {"/run/lock/meshmark", "/dev/shm/meshmark-claims"};
  // Use an existing folder whoever created it: root may write where others may not, and all must use the same one.
  for (const char* folder : kFolders)
    if (access(folder, F_OK) == 0) return folder;
  return access("/run/lock", W_OK) == 0 ? kFolders[0] : kFolders[1];
}

Ledger::Ledger(std::string folder) : folder_(std::move(folder)) {}

std::vector<Reservation> Ledger::reservations() {
  const Folder folder = open_folder(folder_, false);
  if (!folder) return {};
  const Mutex mutex(folder);
  return scan(folder);
}

Occupancy Ledger::occupancy(const std::vector<Reservation>& reservations) {
  Occupancy taken;
  for (const Reservation& reservation : reservations)
    occupy(taken, Placement{reservation.layout, {}, false, {}, {}, false}, reservation.exclusive);
  return taken;
}

Ledger::Held Ledger::reserve(const Reservation& as, const std::function<Placement(const Occupancy&)>& decide,
                             double wait_s) {
  const Folder folder = open_folder(folder_, true);
  const double until = wall_s() + wait_s;
  std::optional<Watch> watch;
  if (wait_s > 0) watch.emplace(folder);
  Ticket ticket(folder);
  for (std::string busy = "other processes are waiting for CPUs";;) {
    // Ranks of a launch take their part as soon as the first one has reserved it, regardless of the queue.
    if (ticket.name.empty() || !as.job.empty() || first_in_line(folder, ticket.name)) {
      const Mutex mutex(folder);
      const std::vector<Reservation> all = scan(folder);
      if (auto held = join_in(all, as.job)) return *std::move(held);
      if (wait_s <= 0 || first_in_line(folder, ticket.name)) try {
          Held held{as, decide(occupancy(of_others(all))), -1};
          const std::string name = "claim-" + random_name();
          held.reservation.path = folder.file(name);
          held.reservation.pid = getpid();
          held.reservation.user = std::to_string(geteuid());
          held.reservation.since_s = now_s();
          held.reservation.layout = held.placement.layout;
          held.reservation.joined = 1;
          const Fd fd = publish(folder, name, reservation_line(held.reservation));
          held.lock_fd = keep(fd.get());
          return held;
        } catch (const Busy& e) {
          if (wait_s <= 0) throw;
          busy = e.what();
        }
      if (ticket.name.empty()) ticket.draw(as);
    }
    const double left_s = until - wall_s();
    if (left_s <= 0) throw Busy(busy + ", for the whole time of --wait");
    if (watch) watch->wait(left_s);
  }
}

std::optional<Ledger::Held> Ledger::join(const std::string& job) {
  const Folder folder = open_folder(folder_, false);
  if (!folder) return std::nullopt;
  const Mutex mutex(folder);
  return join_in(scan(folder), job);
}

void Ledger::set_cgroup(Held& held, const std::string& folder) {
  if (held.reservation.cgroup == folder) return;
  append(held.lock_fd, {{"cgroup", folder}}, held.reservation.path);
  held.reservation.cgroup = folder;
}

void Ledger::release(Held& held) {
  const Folder folder = open_folder(folder_, false);
  if (folder) {
    const Mutex mutex(folder);
    close(std::exchange(held.lock_fd, -1));
    scan(folder);  // removes it unless another process shares it
  }
}

}  // namespace mm::place
