#include "watch/sampler.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <system_error>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/resources/host.hpp"
#include "base/topology/topology.hpp"
#include "sys/files.hpp"
#include "sys/words.hpp"
#include "watch/counters/counters.hpp"

namespace mm::watch {

namespace {

double cpu_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return seconds(use.ru_utime) + seconds(use.ru_stime);
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
    const ssize_t written = ::write(descriptor_, pending_.data(), pending_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return;
    if (written < 0) {
      if (errno != EPIPE) throw Failure(std::string("cannot write frames: ") + std::generic_category().message(errno));
      gone_ = true;
      return;
    }
    pending_.erase(0, static_cast<std::size_t>(written));
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

Sampler::Sampler(const SamplerSettings& settings) : settings_(settings), host_(find_host(settings.root, board_)) {
  host_.ticks_per_s = ticks_per_second();
  host_.sustained = settings.sustained;
  host_.canary = settings.canary;
  host_.kernel = settings.kernel != nullptr ? settings.kernel : host_.live ? &real_kernel() : nullptr;
  std::vector<Registered> ordered = registry();
  std::sort(ordered.begin(), ordered.end(), [](const Registered& a, const Registered& b) {
    return a.first != b.first ? a.first : std::string_view(a.name) < b.name;
  });
  bool complete = false;
  for (const Registered& r : ordered) {
    if (!r.first && !complete) {
      complete_host(host_, board_);
      complete = true;
    }
    bool selected = settings.sources.empty();
    for (const std::string& name : settings.sources) selected = selected || name == r.name;
    for (const std::string& name : settings.without) selected = selected && name != r.name;
    if (!selected) continue;
    const std::size_t first = board_.metrics().size();
    sources_.push_back({r.name, r.make(), first, first});
    sources_.back().source->open(host_, board_);
    sources_.back().last = board_.metrics().size();
  }
  started_ = utc_now();
}

Sampler::~Sampler() { stop_parts(); }

void Sampler::start_parts() {
  bool any_parts = false;
  for (const Opened& s : sources_) any_parts = any_parts || s.source->has_parts();
  if (!any_parts || host_.parts < 2 || !host_.live) return;
  // Only the main thread receives signals, which interrupt its sleep.
  sigset_t all, previous_mask;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &previous_mask);
  for (std::size_t p = 1; p < host_.parts; ++p) {
    parts_.push_back(std::make_unique<Part>());
    parts_.back()->thread = std::thread([this, p, part = parts_.back().get()] {
      sched_setaffinity(0, sizeof host_.part_cpus[p],
                        &host_.part_cpus[p]);  // if permitted; otherwise it samples from any CPU
      while (true) {
        part->go.acquire();
        if (stopping_) return;
        try {
          sample_part(p);
        } catch (...) {
          part->error = std::current_exception();
        }
        done_.release();
      }
    });
  }
  pthread_sigmask(SIG_SETMASK, &previous_mask, nullptr);
  sched_setaffinity(0, sizeof host_.part_cpus[0], &host_.part_cpus[0]);
}

void Sampler::stop_parts() {
  stopping_ = true;
  for (const auto& part : parts_) {
    part->go.release();
    if (part->thread.joinable()) part->thread.join();  // the last thread may not have started
  }
  parts_.clear();
}

json Sampler::header() const {
  json head{{"type", "header"},
            {"format", 1},
            {"source", settings_.root.empty() ? "host" : "recording"},
            {"machine", identity_of_tree(settings_.root, host_.machine).id()}};
  if (!settings_.root.empty()) head["root"] = settings_.root;
  if (const std::string release = kernel_release(settings_.root); !release.empty()) head["kernel"] = release;
  head["started"] = started_;
  head["period_s"] = settings_.period_s;
  head["tick_s"] = 1 / host_.ticks_per_s;
  json names = json::array();
  for (const Opened& s : sources_) names.push_back(s.name);
  head["sources"] = names;
  head.update(board_.header());
  return head;
}

void Sampler::sample_part(std::size_t part) {
  for (const Opened& s : sources_)
    if (s.now && s.source->has_parts()) s.source->sample_part(board_, now_, part);
}

void Sampler::sample(double now) {
  now_ = now;
  bool in_parts = false;
  for (Opened& s : sources_) {
    s.now = now >= s.due;
    if (!s.now) continue;
    board_.forget(s.first, s.last);
    in_parts = in_parts || s.source->has_parts();
  }
  // Wake the threads of nodes only if a source needs them.
  if (in_parts)
    for (const auto& part : parts_) part->go.release();
  for (std::size_t p = 0; in_parts && p < host_.parts - parts_.size(); ++p) sample_part(p);
  if (in_parts)
    for (std::size_t i = 0; i < parts_.size(); ++i) done_.acquire();
  for (const auto& part : parts_)
    if (part->error) std::rethrow_exception(part->error);
  for (Opened& s : sources_) {
    if (!s.now) continue;
    s.source->sample(board_, now);
    // The cost of the sample is known only now. Tolerate a tick that is slightly early.
    s.due = now + s.source->min_period() - settings_.period_s / 4;
  }
}

void Sampler::run(Outlet& out, const std::atomic<bool>& stop) {
  start_parts();
  const double begin = wall_s();
  double previous_s = begin, previous_cpu_s = cpu_seconds();
  sample(begin);  // counters need an initial value
  // Only now: a reader that has the header may start a command, and the first frame contains all of it.
  out.line(to_line(header()) + "\n");
  out.flush();
  std::string lines;
  lines.reserve(1 << 16);
  std::uint64_t pending_frames = 0;
  double last_write = begin;
  for (std::uint64_t tick = 1; !stop && !out.gone(); ++tick) {
    double due = begin + static_cast<double>(tick) * settings_.period_s;
    if (settings_.duration_s > 0 && due > begin + settings_.duration_s + 1e-9) break;
    // After a suspend or a stop, skip the missed ticks.
    if (const double late = wall_s() - due; late > settings_.period_s) {
      tick += static_cast<std::uint64_t>(late / settings_.period_s);
      due = begin + static_cast<double>(tick) * settings_.period_s;
    }
    sleep_until(due, stop);
    // Signed: the clock of a machine without a battery may be before 1970.
    const auto since_1970_ns = static_cast<std::int64_t>(kernel_ns(CLOCK_REALTIME));
    const double now = wall_s(), unix_time_s = 1e-9 * static_cast<double>(since_1970_ns);
    // The last frame ends when the sampler is stopped, unless it would be too short for the ticks of /proc/stat.
    if (stop && now - previous_s < 1 / host_.ticks_per_s) break;
    sample(now);
    const double cost = cpu_seconds();
    char head[240];
    std::snprintf(head, sizeof head,
                  "{\"type\":\"frame\",\"seq\":%llu,\"t_s\":%.6f,\"window_s\":%.6f,\"at\":%.3f,\"late_s\":%.6f,"
                  "\"cost_s\":%.6f,\"dropped\":%llu,",
                  static_cast<unsigned long long>(tick), now - begin, now - previous_s, unix_time_s,
                  std::max(0.0, now - due), cost - previous_cpu_s, static_cast<unsigned long long>(out.dropped()));
    previous_cpu_s = cost;
    lines += head;
    board_.write_values(lines);
    lines += "}\n";
    ++pending_frames;
    if (now - last_write >= settings_.hold_s - settings_.period_s / 2) {
      out.line(lines, pending_frames);
      lines.clear();
      pending_frames = 0;
      last_write = now;
    }
    previous_s = now;
  }
  if (pending_frames > 0) out.line(lines, pending_frames);
  out.flush();
}

}  // namespace mm::watch
