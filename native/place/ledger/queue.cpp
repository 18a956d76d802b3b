#include "place/ledger/queue.hpp"

#include <poll.h>
#include <pwd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "place/ledger/format.hpp"

namespace mm::place::ledger {

namespace {

constexpr const char* kTicket = "wait-";

/// Returns the name of a new ticket. Names sort by time. Requires the folder's lock, so that a later ticket has a later
/// time.
std::string ticket_name() {
  char text[64];
  timespec t{};
  clock_gettime(CLOCK_BOOTTIME, &t);
  std::snprintf(text, sizeof text, "%s%012lld.%09ld-", kTicket, static_cast<long long>(t.tv_sec), t.tv_nsec);
  return text + random_name();
}

}  // namespace

void remove_dead_tickets(const Folder& folder) {
  for (const std::string& name : names_in(folder, kTicket)) {
    const auto entry = open_entry(folder, name);
    if (entry && dead(*entry)) unlinkat(folder.fd.get(), name.c_str(), 0);
  }
}

bool first_in_line(const Folder& folder, const std::string& ticket) {
  for (const std::string& name : names_in(folder, kTicket)) {
    if (!ticket.empty() && name >= ticket) return true;
    const auto entry = open_entry(folder, name);
    if (!entry) continue;
    if (!dead(*entry)) return false;
    unlinkat(folder.fd.get(), name.c_str(), 0);
  }
  return true;
}

Watch::Watch(const Folder& folder) : fd_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
  if (fd_) inotify_add_watch(fd_.get(), folder.path.c_str(), IN_CLOSE_WRITE | IN_DELETE | IN_ONLYDIR);
}

void Watch::wait(double max_s) {
  pollfd ready{fd_.get(), POLLIN, 0};
  const double pause_s = std::min(max_s, pause_s_);
  if (poll(&ready, fd_ ? 1 : 0, static_cast<int>(std::ceil(1e3 * pause_s))) == 1) {
    char events[4096];
    while (read(fd_.get(), events, sizeof events) > 0) {}
    pause_s_ = 0.002;  // the lock is released shortly after the event
  } else {
    pause_s_ = std::min(2 * pause_s_, 0.2);  // in case there are no events at all
  }
}

void Ticket::draw(const Reservation& as) {
  const std::string ticket = ticket_name();
  const json line{{"pid", getpid()}, {"since_s", now_s()}, {"command", as.command.substr(0, kMaxText)}};
  fd = publish(folder, ticket, line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
  name = ticket;
}

std::string user_name(const std::string& uid) {
  const passwd* const entry = getpwuid(static_cast<uid_t>(std::stoul(uid)));
  return entry != nullptr ? entry->pw_name : uid;
}

json waiting_in(const Folder& folder) {
  json all = json::array();
  if (!folder) return all;
  for (const std::string& name : names_in(folder, kTicket)) {
    const auto entry = open_entry(folder, name);
    if (!entry || dead(*entry)) continue;
    const json line = parse_json(read_bounded(entry->fd.get()));
    if (!line.is_object()) continue;
    try {
      all.push_back({{"pid", line.at("pid").get<int>()},
                     {"user", user_name(std::to_string(entry->status.st_uid))},
                     {"since_s", line.at("since_s").get<double>()},
                     {"command", text_of(line, "command")}});
    } catch (const std::exception&) {
      warn("ignored " + folder.file(name) + ": not a ticket");
    }
  }
  return all;
}

}  // namespace mm::place::ledger
