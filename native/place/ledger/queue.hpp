#pragma once
/// Processes that wait for CPUs: a ticket each, in the order of their names.
#include <string>

#include "../ledger.hpp"
#include "folder.hpp"
#include "json.hpp"

namespace mm::place::ledger {

/// Who was killed while waiting left a ticket, which is in nobody's way and would lie here for ever.
void remove_dead_tickets(const Folder& folder);

/// Is nobody who lives before `mine` (at all, where it is empty)?
bool first_in_line(const Folder& folder, const std::string& mine);

/// Wakes when a reservation or a ticket was removed, or its last holder closed it: the kernel says so when a process
/// dies.
class Watch {
 public:
  explicit Watch(const Folder& folder);
  void wait(double most_s);

 private:
  Fd fd_;
  double pause_s_ = 0.002;
};

/// A ticket that goes with this object, as with the process.
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

/// The living tickets: pid, user, since_s, command.
json waiting_in(const Folder& folder);

std::string user_name(const std::string& uid);

}  // namespace mm::place::ledger
