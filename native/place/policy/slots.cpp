#include <algorithm>
#include <cstdio>
#include <iostream>

#include "base/options/arguments.hpp"
#include "base/options/options.hpp"
#include "place/ledger/folder.hpp"
#include "place/ledger/ledger.hpp"
#include "place/ledger/queue.hpp"

namespace mm::place {

using ledger::user_name;

namespace {

/// Returns the text of another user, limited to printable characters and to the width of a column.
std::string plain(const std::string& text, std::size_t max) {
  std::string printable;
  for (const char c : text.substr(0, max)) printable += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return printable;
}

std::string age(double since_s) {
  const double s = std::max(0.0, ledger::now_s() - since_s);
  char text[32];
  if (s < 120)
    std::snprintf(text, sizeof text, "%.0f s", s);
  else if (s < 7200)
    std::snprintf(text, sizeof text, "%.0f min", s / 60);
  else
    std::snprintf(text, sizeof text, "%.1f h", std::min(s / 3600, 1e6));
  return text;
}

}  // namespace

int slots_verb(int argc, char** argv) {
  Arguments app{"Show which jobs hold which CPUs of this node, and which ones wait.\n\nexample: meshmark slots --json",
                "meshmark slots"};
  std::string where = ledger_folder();
  bool as_json = false;
  app.add("--ledger", where, "folder of the ledger").show_default();
  app.flag("--json", as_json, "one object");
  if (!app.read(argc, argv, "slots")) return 0;
  const std::vector<Reservation> reservations = Ledger(where).reservations();
  const json waiting = ledger::waiting_in(ledger::open_folder(where, false));
  const Machine machine = machine_of("host");
  const Occupancy occupancy = Ledger::occupancy(reservations);
  std::vector<int> free;
  for (const int cpu : machine.allowed)
    if (!occupancy.jobs.contains(cpu)) free.push_back(cpu);

  if (as_json) {
    json all{{"ledger", where}, {"claims", json::array()}, {"free", free}, {"waiting", waiting}};
    for (const Reservation& c : reservations)
      all["claims"].push_back({{"cpus", c.layout.cpus()},
                               {"parts", c.layout.parts},
                               {"user", user_name(c.user)},
                               {"pid", c.pid},
                               {"since_s", c.since_s},
                               {"command", c.command},
                               {"policy", c.policy},
                               {"job", c.job},
                               {"exclusive", c.exclusive},
                               {"joined", c.joined},
                               {"cgroup", c.cgroup.empty() ? json(nullptr) : json(c.cgroup)},
                               {"path", c.path}});
    std::cout << all.dump(-1, ' ', false, json::error_handler_t::replace) << "\n";
    return 0;
  }
  if (!reservations.empty())
    std::printf("%-16s %-10s %-10s %8s %8s  %s\n", "CPUs", "policy", "user", "pid", "since", "command");
  for (const Reservation& c : reservations)
    std::printf("%-16s %-10s %-10s %8d %8s  %s\n", cpu_list(c.layout.cpus()).c_str(),
                plain(c.policy + (c.exclusive ? "!" : ""), 10).c_str(), plain(user_name(c.user), 10).c_str(), c.pid,
                age(c.since_s).c_str(), plain(c.command, 60).c_str());
  for (const json& w : waiting)
    std::printf("%-16s %-10s %-10s %8d %8s  %s\n", "waits", "", plain(w["user"], 10).c_str(), w["pid"].get<int>(),
                age(w["since_s"]).c_str(), plain(w["command"], 60).c_str());
  std::printf("free: %s\n", free.empty() ? "none" : cpu_list(free).c_str());
  return 0;
}

}  // namespace mm::place
