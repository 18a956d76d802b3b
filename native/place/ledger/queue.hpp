#pragma once
/// Processes that wait for CPUs: one ticket each, ordered by name.
#include <string>

#include "base/json.hpp"
#include "place/ledger/folder.hpp"
#include "place/ledger/ledger.hpp"

namespace mm::place::ledger {

/// Removes tickets of processes that were killed while waiting.
void remove_dead_tickets(const Folder& folder);

/// Returns whether no living process is before `mine`, or whether no living process waits at all if `mine` is empty.
bool first_in_line(const Folder& folder, const std::string& mine);

/// Wakes when a reservation or a ticket is removed, or when its last holder closes it, as happens when a process dies.
class Watch {
 public:
  explicit Watch(const Folder& folder);
  void wait(double max_s);

 private:
  Fd fd_;
  double pause_s_ = 0.002;
};

/// A ticket, which is removed with this object or when the process dies.
struct Ticket {
  const Folder& folder;
  std::string name;
  Fd fd;
  explicit Ticket(const Folder& in) : folder(in) {}
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  ~Ticket() {
    if (!name.empty()) unlinkat(folder.fd.get(), name.c_str(), 0);
  }
  void draw(const Reservation& as);
};

/// Returns the living tickets: pid, user, since_s, command.
json waiting_in(const Folder& folder);

std::string user_name(const std::string& uid);

}  // namespace mm::place::ledger
