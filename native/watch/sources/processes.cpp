/// The busiest processes: their share of a CPU, the CPU of their last run, and the nodes of their memory.
///
/// A scan reads one small file per process. It runs every two seconds, or less often if it is slow: it takes at most
/// 0.5 % of one CPU.
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.hpp"
#include "sys/files.hpp"
#include "sys/words.hpp"
#include "watch/source.hpp"

namespace mm::watch {
namespace {

constexpr std::size_t kShown = 8, kPlaced = 4;          // number in frames; number of these with pages and threads
constexpr std::size_t kThreads = 8, kMaxThreads = 512;  // per process: in frames; sampled
constexpr double kMinShare = 0.01, kMinPeriod = 2, kMaxCost = 0.005;

/// Reads a whole file; returns an empty text if it is gone.
std::string_view read_into(const std::string& path, std::vector<char>& buffer) {
  const int file = open_to_read(path);
  if (file < 0) return {};
  std::size_t size = 0;
  while (true) {
    if (size == buffer.size()) buffer.resize(std::max<std::size_t>(8192, 2 * buffer.size()));
    const ssize_t n = ::read(file, buffer.data() + size, buffer.size() - size);
    if (n <= 0 || size > (32u << 20)) break;
    size += static_cast<std::size_t>(n);
  }
  ::close(file);
  return {buffer.data(), size};
}

class ProcessSource : public Source {
 public:
  void open(const Host& host, Board& board) override {
    folder_ = host.root + "/proc/";
    ticks_per_s_ = host.ticks_per_s;
    nodes_ = host.nodes;
    page_ = static_cast<double>(sysconf(_SC_PAGESIZE));
    (void)board;
  }

  void sample(Board& board, double now) override {
    const double begin = wall_s();
    ++round_;
    found_.clear();
    if (DIR* const all = ::opendir(folder_.c_str())) {
      while (const dirent* const entry = ::readdir(all)) {
        const auto pid = whole_number(entry->d_name);
        if (pid > 0) sample_process(pid, now);
      }
      ::closedir(all);
    }
    // Forget processes that have ended.
    std::erase_if(processes_, [&](const auto& item) { return item.second.round != round_; });
    const std::size_t shown = std::min(kShown, found_.size());
    std::partial_sort(found_.begin(), found_.begin() + static_cast<std::ptrdiff_t>(shown), found_.end(),
                      [](const Busy& a, const Busy& b) { return a.share > b.share; });
    json entries = json::array();
    for (std::size_t i = 0; i < shown; ++i) {
      const Busy& p = found_[i];
      json entry{{"pid", p.pid},         {"name", p.name}, {"cpu", std::round(p.share * 1e4) / 1e4},
                 {"threads", p.threads}, {"rss", p.rss},   {"on", p.on}};
      if (i < kPlaced) {
        if (nodes_.size() > 1) entry["nodes"] = pages_of(p.pid);
        entry["allowed"] = allowed(p.pid);
        if (p.threads > 1) entry["busiest"] = threads_of(p.pid, now);
      }
      entries.push_back(std::move(entry));
    }
    std::erase_if(threads_, [&](const auto& item) { return item.second.round != round_; });
    last_ = now;
    board.note("processes", entries.dump(-1, ' ', true, json::error_handler_t::replace));
    cost_ = wall_s() - begin;
  }

  double min_period() const override { return std::max(kMinPeriod, cost_ / kMaxCost); }

 private:
  struct Previous {
    std::int64_t ticks = 0, started = 0;
    std::uint64_t round = 0;
  };
  struct PreviousThread {
    std::int64_t ticks = 0, waited = 0, started = 0;
    std::uint64_t round = 0;
  };
  struct Busy {
    std::int64_t pid = 0, threads = 0, on = 0;
    double share = 0, rss = 0;
    std::string name;
  };

  using Fields = std::array<std::int64_t, 40>;  ///< fields of a stat file, indexed as in proc(5)

  /// Parses `pid (name) state …`; returns false if that fails.
  bool stat_of(const std::string& file, std::string& name, Fields& field) {
    std::string_view text = read_into(file, buffer_);
    // A name may contain any character, so the last parenthesis ends it.
    const std::size_t open = text.find('('), close = text.rfind(')');
    if (open == std::string_view::npos || close == std::string_view::npos || close < open) return false;
    name = text.substr(open + 1, close - open - 1);
    std::string_view rest = text.substr(close + 1);
    field = {};
    for (std::size_t i = 3; i < field.size(); ++i) field[i] = whole_number(next_word(rest), 0);
    return true;
  }

  void sample_process(std::int64_t pid, double now) {
    Fields field;
    if (!stat_of(folder_ + std::to_string(pid) + "/stat", name_, field)) return;
    Previous& previous = processes_[pid];
    const Previous current{field[14] + field[15], field[22], round_};
    const bool comparable = previous.round == round_ - 1 && previous.started == current.started && now > last_;
    const double share =
        comparable ? static_cast<double>(current.ticks - previous.ticks) / ticks_per_s_ / (now - last_) : 0;
    previous = current;
    if (share < kMinShare) return;
    found_.push_back({pid, field[20], field[39], share, static_cast<double>(field[24]) * page_, name_});
  }

  /// Returns the busiest threads of a process: share of a CPU, share of the time runnable but waiting, and the CPU of
  /// the last run. Shares are known from the second sample.
  json threads_of(std::int64_t pid, double now) {
    struct ThreadLoad {
      std::int64_t tid, on;
      double share, waited;
      std::string name;
    };
    std::vector<ThreadLoad> all;
    const std::string folder = folder_ + std::to_string(pid) + "/task/";
    DIR* const tasks = ::opendir(folder.c_str());
    if (tasks == nullptr) return nullptr;
    Fields field;
    for (const dirent* entry; all.size() < kMaxThreads && (entry = ::readdir(tasks)) != nullptr;) {
      const auto tid = whole_number(entry->d_name);
      const std::string file = folder + entry->d_name;
      if (tid <= 0 || !stat_of(file + "/stat", name_, field)) continue;
      std::string_view text = read_into(file + "/schedstat", buffer_);  // ns on a CPU, ns waiting for one
      next_word(text);
      PreviousThread& previous = threads_[tid];
      const PreviousThread current{field[14] + field[15], whole_number(next_word(text), -1), field[22], round_};
      const bool comparable = previous.round != 0 && previous.started == current.started && now > last_;
      const double span = now - last_;
      all.push_back({tid, field[39],
                     comparable ? static_cast<double>(current.ticks - previous.ticks) / ticks_per_s_ / span : kUnknown,
                     comparable && previous.waited >= 0 && current.waited >= previous.waited
                         ? static_cast<double>(current.waited - previous.waited) * 1e-9 / span
                         : kUnknown,
                     name_});
      previous = current;
    }
    ::closedir(tasks);
    std::sort(all.begin(), all.end(), [](const ThreadLoad& a, const ThreadLoad& b) {
      return (a.share == a.share ? a.share : -1) > (b.share == b.share ? b.share : -1);
    });
    const auto share = [](double value) { return value == value ? json(std::round(value * 1e4) / 1e4) : json(); };
    json entries = json::array();
    for (std::size_t i = 0; i < std::min(kThreads, all.size()); ++i)
      entries.push_back({{"tid", all[i].tid},
                         {"name", all[i].name},
                         {"cpu", share(all[i].share)},
                         {"waiting", share(all[i].waited)},
                         {"on", all[i].on}});
    return entries;
  }

  /// Returns the CPUs that a process may use, in the Linux kernel's list format; null if unknown.
  json allowed(std::int64_t pid) {
    std::string_view text = read_into(folder_ + std::to_string(pid) + "/status", buffer_);
    while (!text.empty()) {
      std::string_view line = next_line(text);
      if (next_word(line) == "Cpus_allowed_list:") return std::string(next_word(line));
    }
    return nullptr;
  }

  /// Returns the bytes of a process per node, in order; null if unknown.
  json pages_of(std::int64_t pid) {
    std::vector<double> bytes(nodes_.size(), 0);
    std::string_view text = read_into(folder_ + std::to_string(pid) + "/numa_maps", buffer_);
    if (text.empty()) return nullptr;
    while (!text.empty()) {
      std::string_view line = next_line(text);
      double unit = page_;
      if (const std::size_t at = line.find("kernelpagesize_kB="); at != std::string_view::npos) {
        std::string_view size = line.substr(at + 18);
        unit = 1024.0 * static_cast<double>(whole_number(next_word(size), 4));
      }
      while (!line.empty()) {
        const std::string_view word = next_word(line);
        const std::size_t equals = word.find('=');
        if (word.size() < 4 || word[0] != 'N' || equals == std::string_view::npos) continue;
        const auto node = whole_number(word.substr(1, equals - 1));
        for (std::size_t n = 0; n < nodes_.size(); ++n)
          if (nodes_[n] == node) bytes[n] += unit * static_cast<double>(whole_number(word.substr(equals + 1), 0));
      }
    }
    return bytes;
  }

  std::string folder_;
  std::vector<char> buffer_;
  std::vector<int> nodes_;
  std::unordered_map<std::int64_t, Previous> processes_;
  std::unordered_map<std::int64_t, PreviousThread> threads_;
  std::vector<Busy> found_;
  std::string name_;
  double ticks_per_s_ = 100, page_ = 4096, last_ = 0, cost_ = 0;
  std::uint64_t round_ = 0;
};

const Registration<ProcessSource> processes_source("processes", "the busiest processes and where their memory lies");

}  // namespace
}  // namespace mm::watch
