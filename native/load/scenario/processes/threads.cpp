#include "load/scenario/processes/threads.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace mm::load {
namespace {

constexpr double kMigrationsEvery_s = 1;  // initial interval; it grows

}  // namespace

std::optional<std::pair<std::uint64_t, std::uint64_t>> parse_schedstat(std::string_view text) {
  std::uint64_t ran = 0, waited = 0;
  const char *const begin = text.data(), *const end = begin + text.size();
  const auto first = std::from_chars(begin, end, ran);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ' ') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, waited);
  if (second.ec != std::errc()) return std::nullopt;
  return std::pair{ran, waited};
}

long long parse_migrations(std::string_view text) {
  const std::size_t at = text.find("se.nr_migrations");
  if (at == std::string_view::npos) return -1;
  std::size_t first = text.find(':', at);
  if (first == std::string_view::npos) return -1;
  first = text.find_first_not_of(" \t:", first);
  if (first == std::string_view::npos || text[first] < '0' || text[first] > '9') return -1;
  return static_cast<long long>(leading_number(text.substr(first)));
}

double Use::accounted_share() const {
  return wall_s() > 0 ? (user_s + system_s + waiting_s + sleeping_s) / wall_s() : 1;
}

Thread::Thread(std::size_t number_, std::size_t job_, pid_t process_, pid_t id_)
    : number(number_),
      job(job_),
      process(process_),
      id(id_),
      stat_(task_folder(process_, id_) + "stat"),
      schedstat_(task_folder(process_, id_) + "schedstat") {}

void Thread::sample(const RunClock& clock) {
  const auto times = parse_schedstat(schedstat_.text());
  const auto stat = times ? parse_stat(stat_.text()) : std::nullopt;
  if (!stat || (started != 0 && stat->started != started)) {
    ended = true;
    return;
  }
  if (started == 0) started = stat->started;
  if (command != stat->command) command = stat->command;
  siblings = stat->threads;
  if (last.cpu >= 0 && stat->cpu != last.cpu) ++moves;
  // A CPU on which the thread only waited does not count.
  if (times->first != last.ran_ns || ran_on.empty()) ran_on.insert(stat->cpu);
  last = {clock.now(), times->first, times->second, stat->user, stat->system, stat->state, stat->cpu};
}

long long Thread::migrations_now() const { return parse_migrations(read_text(task_folder(process, id) + "sched")); }

void Thread::count_migrations(const RunClock& clock) {
  if (const long long n = migrations_now(); n >= 0) migrations = n;
  next_migrations_s = clock.now() + std::max(kMigrationsEvery_s, (clock.now() - base.at_s) / 8);
}

void Thread::set_base(const RunClock& clock) {
  migrations = base_migrations = migrations_now();
  next_migrations_s = clock.now() + kMigrationsEvery_s;
  base = last;
}

void Thread::set_birth(double at_s, const RunClock& clock) {
  base = {};
  base.at_s = at_s;
  base_migrations = 0;
  next_migrations_s = clock.now() + kMigrationsEvery_s;
}

Use Thread::use() const {
  Use u;
  u.from_s = base.at_s;
  u.to_s = last.at_s;
  u.ran_s = 1e-9 * static_cast<double>(last.ran_ns - base.ran_ns);
  u.waiting_s = 1e-9 * static_cast<double>(last.waited_ns - base.waited_ns);
  const auto user = static_cast<double>(last.user_ticks - base.user_ticks);
  const auto system = static_cast<double>(last.system_ticks - base.system_ticks);
  // CPU time has a resolution of ns, its split into user and system only of 10 ms.
  u.system_s = user + system > 0 ? u.ran_s * system / (user + system) : 0;
  u.user_s = u.ran_s - u.system_s;
  u.sleeping_s = std::max(0.0, u.wall_s() - u.ran_s - u.waiting_s);
  const long long migration_count = migrations >= 0 ? migrations - std::max(0LL, base_migrations) : -1;
  u.migrations = std::max(migration_count, moves);
  return u;
}

}  // namespace mm::load
