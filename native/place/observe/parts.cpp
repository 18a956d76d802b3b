#include "place/observe/parts.hpp"

#include <algorithm>
#include <set>

#include "place/observe/text.hpp"

namespace mm::place::observe {

namespace {

// Window for comparing CPU time, which the Linux kernel updates in ticks of 1 to 10 ms.
constexpr double kWindowS = 0.1;
// Minimum share of the time left by other programs in which a thread ran or waited for its neighbours.
constexpr double kBusy = 0.25;
// Minimum share of a window in which it did so; less does not show what it would do.
constexpr double kJudged = 0.04;
// A part whose threads together ran for less than this share of a window counts as empty.
constexpr double kIdle = 0.05;

}  // namespace

SharedPartDetector::SharedPartDetector(Context& context) : context_(context) {
  if (!context_.expected.each) return;
  for (std::vector<int> part : context_.expected.layout.parts) {
    std::sort(part.begin(), part.end());
    auto room = std::find_if(rooms_.begin(), rooms_.end(), [&](const Room& r) { return r.cpus == part; });
    if (room == rooms_.end()) room = rooms_.insert(room, {part, 0});
    ++room->units;
  }
  std::set<int> distinct;
  for (const Room& room : rooms_)
    for (const int cpu : room.cpus)
      if (!distinct.insert(cpu).second) {
        context_.absent.insert("whether threads share a part: the parts overlap on CPU " + std::to_string(cpu));
        rooms_.clear();
        return;
      }
}

void SharedPartDetector::update(std::map<pid_t, ObservedProcess>& living, double now) {
  if (now - window_begin_s_ >= kWindowS) close_window(living, now);
}

void SharedPartDetector::close_window(std::map<pid_t, ObservedProcess>& living, double now) {
  const double length = now - window_begin_s_;
  context_.update_offline();
  struct PlacedUnit {
    std::vector<ObservedThread*> threads;
    std::set<std::size_t> on;
    std::string label;
  };
  struct ThreadUse {
    pid_t process, id;
    ObservedThread* thread;
    std::size_t room;
    double ran, waited;
  };
  std::vector<ThreadUse> shares;
  std::vector<double> used(rooms_.size());
  for (auto& [id, process] : living)
    for (auto& [tid, thread] : process.threads) {
      const double ran = static_cast<double>(thread.ran_ns - thread.window_ran) * 1e-9 / length;
      const double waited = static_cast<double>(thread.waited_ns - thread.window_waited) * 1e-9 / length;
      const bool was_in_window = std::exchange(thread.in_window, true);
      thread.window_ran = thread.ran_ns;
      thread.window_waited = thread.waited_ns;
      if (!was_in_window) continue;
      for (std::size_t r = 0; r < rooms_.size(); ++r) {
        if (!std::binary_search(rooms_[r].cpus.begin(), rooms_[r].cpus.end(), thread.last.cpu)) continue;
        used[r] += ran;
        shares.push_back({id, tid, &thread, r, ran, waited});
      }
    }
  std::map<pid_t, PlacedUnit> processes, threads;
  for (const ThreadUse& share : shares) {
    // A thread cannot have waited longer for its neighbours than they ran; for the rest, it waited for other programs.
    const double for_neighbours = std::min(share.waited, used[share.room] - share.ran);
    const double for_others = std::min(share.waited - for_neighbours, 0.99);
    const double occupied = share.ran + for_neighbours;
    if (occupied < kJudged || occupied / (1 - for_others) < kBusy) continue;
    for (PlacedUnit* unit : {&processes[share.process], &threads[share.id]}) {
      unit->threads.push_back(share.thread);
      unit->on.insert(share.room);
    }
    processes[share.process].label = share.thread->last.command + ' ' + std::to_string(share.process);
    threads[share.id].label = share.thread->last.command + ' ' + std::to_string(share.id);
  }
  window_begin_s_ = now;
  std::map<pid_t, PlacedUnit>& units = processes.size() > 1 ? processes : threads;
  const auto empty = std::find_if(used.begin(), used.end(), [](double u) { return u < kIdle; });
  if (empty == used.end()) return;
  for (std::size_t r = 0; r < rooms_.size(); ++r) {
    std::vector<PlacedUnit*> sharing_units;
    for (auto& [id, unit] : units)
      if (unit.on == std::set<std::size_t>{r}) sharing_units.push_back(&unit);
    if (sharing_units.size() <= rooms_[r].units) continue;
    std::string names;
    for (const PlacedUnit* unit : sharing_units) names += (names.empty() ? "" : ", ") + unit->label;
    for (PlacedUnit* unit : sharing_units)
      for (ObservedThread* thread : unit->threads) {
        thread->doubled_s += length;
        ++thread->doubled_windows;
        thread->doubled_with = names + " shared " + cpus_text(rooms_[r].cpus) + " while " +
                               cpus_text(rooms_[static_cast<std::size_t>(empty - used.begin())].cpus) + " stayed empty";
      }
  }
}

}  // namespace mm::place::observe
