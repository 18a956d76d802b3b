#include "sampler.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <system_error>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/host.hpp"

namespace mm::watch {

namespace {

double cpu_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return of(use.ru_utime) + of(use.ru_stime);
}

void sleep_until(double at, const std::atomic<bool>& stop) {
  while (!stop) {
    timespec t{};
    t.tv_sec = static_cast<std::time_t>(at);
    t.tv_nsec = static_cast<long>((at - std::floor(at)) * 1e9);
    if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) != EINTR) return;
  }
}

}  // namespace

Outlet::Outlet(int descriptor) : descriptor_(descriptor) {
  struct stat kind{};
  if (fstat(descriptor, &kind) == 0 && (S_ISFIFO(kind.st_mode) || S_ISSOCK(kind.st_mode)))
    fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
}

void Outlet::push() {
  while (!pending_.empty() && !gone_) {
    const ssize_t taken = ::write(descriptor_, pending_.data(), pending_.size());
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0 && errno == EAGAIN) return;
    if (taken < 0) {
      if (errno != EPIPE) throw Failure(std::string("cannot write frames: ") + std::generic_category().message(errno));
      gone_ = true;
      return;
    }
    pending_.erase(0, static_cast<std::size_t>(taken));
  }
}

bool Outlet::line(const std::string& text, std::uint64_t frames) {
  push();
  if (!pending_.empty()) {
    dropped_ += frames;
    return false;
  }
  pending_ = text;
  push();
  return true;
}

void Outlet::flush() {
  push();
  while (!pending_.empty() && !gone_) {
    pollfd wait{descriptor_, POLLOUT, 0};
    if (poll(&wait, 1, 2000) <= 0) return;
    push();
  }
}

Sampler::Sampler(const Settings& settings) : settings_(settings), host_(find_host(settings.root, board_)) {
  host_.ticks_per_s = ticks_per_second();
  for (const Registered& r : registry()) {
    bool wanted = settings.sources.empty();
    for (const std::string& name : settings.sources) wanted = wanted || name == r.name;
    if (!wanted) continue;
    const std::size_t first = board_.metrics().size();
    sources_.push_back({r.name, r.make(), first, first, 0});
    sources_.back().source->open(host_, board_);
    sources_.back().last = board_.metrics().size();
  }
  started_ = utc_now();
}

json Sampler::header() const {
  json head{{"type", "header"}, {"format", 1}, {"source", "host"}, {"machine", host_name()}};
  if (!settings_.root.empty()) head["root"] = settings_.root;
  head["kernel"] = kernel_release();
  head["started"] = started_;
  head["period_s"] = settings_.period_s;
  head["tick_s"] = 1 / host_.ticks_per_s;
  json names = json::array();
  for (const Opened& s : sources_) names.push_back(s.name);
  head["sources"] = names;
  head.update(board_.header());
  return head;
}

void Sampler::sample(double now) {
  for (Opened& s : sources_) {
    if (now < s.due) continue;
    s.due = now + s.source->least_period() - settings_.period_s / 4;  // a tick that is early by a little counts
    board_.forget(s.first, s.last);
    s.source->sample(board_, now);
  }
}

void Sampler::run(Outlet& out, const std::atomic<bool>& stop) {
  const double begin = wall_s();
  double before = begin, spent = cpu_seconds();
  sample(begin);  // counters need a first value
  std::string lines;
  lines.reserve(1 << 16);
  std::uint64_t held = 0;
  double written = begin;
  for (std::uint64_t tick = 1; !stop && !out.gone(); ++tick) {
    double due = begin + static_cast<double>(tick) * settings_.period_s;
    if (settings_.duration_s > 0 && due > begin + settings_.duration_s + 1e-9) break;
    // A machine that slept, or was held, has missed ticks: they are skipped, not made up for.
    if (const double late = wall_s() - due; late > settings_.period_s) {
      tick += static_cast<std::uint64_t>(late / settings_.period_s);
      due = begin + static_cast<double>(tick) * settings_.period_s;
    }
    sleep_until(due, stop);
    const double now = wall_s(), at = 1e-9 * static_cast<double>(kernel_ns(CLOCK_REALTIME));
    if (stop) break;
    sample(now);
    const double cost = cpu_seconds();
    char head[240];
    std::snprintf(head, sizeof head,
                  "{\"type\":\"frame\",\"seq\":%llu,\"t_s\":%.6f,\"window_s\":%.6f,\"at\":%.3f,\"late_s\":%.6f,"
                  "\"cost_s\":%.6f,\"dropped\":%llu,",
                  static_cast<unsigned long long>(tick), now - begin, now - before, at, now - due, cost - spent,
                  static_cast<unsigned long long>(out.dropped()));
    spent = cost;
    lines += head;
    board_.write_values(lines);
    lines += "}\n";
    ++held;
    if (now - written >= settings_.hold_s - settings_.period_s / 2) {
      out.line(lines, held);
      lines.clear();
      held = 0;
      written = now;
    }
    before = now;
  }
  if (held > 0) out.line(lines, held);
  out.flush();
}

}  // namespace mm::watch
