/// The whole machine: run queue, context switches, interrupts and pressure, from /proc/stat and /proc/pressure.
#include "sys/files.hpp"
#include "sys/words.hpp"
#include "watch/source.hpp"

namespace mm::watch {
namespace {

class SystemSource : public Source {
 public:
  void open(const Host& host, Board& board) override {
    if (board.components("host") == 0) board.add("host", {{"name", "host"}});
    stat_ = KernelFile(host.root + "/proc/stat");
    running_ = board.add({"host.running", "1", "running and runnable tasks"});
    blocked_ = board.add({"host.blocked", "1", "tasks waiting for I/O"});
    switches_ = board.add({"host.switches", "1/s", "context switches"});
    interrupts_ = board.add({"host.interrupts", "1/s", "interrupts"});
    forks_ = board.add({"host.forks", "1/s", "tasks created"});
    static constexpr const char* kClasses[] = {"cpu", "memory", "io"};
    for (const char* kind : kClasses) {
      pressure_.push_back({KernelFile(host.root + "/proc/pressure/" + kind), 0, {}});
      if (!pressure_.back().file) {
        board.absent(std::string("host.pressure_") + kind, "the Linux kernel does not report pressure (CONFIG_PSI)",
                     "boot with psi=1");
        pressure_.pop_back();
        continue;
      }
      pressure_.back().metric =
          board.add({std::string("host.pressure_") + kind, "1",
                     std::string("time in which some task waited for ") + (kind == std::string("cpu")  ? "a CPU"
                                                                           : kind == std::string("io") ? "I/O"
                                                                                                       : kind),
                     "wall time"});
    }
  }

  void sample(Board& board, double now) override {
    for (std::string_view text = stat_.text(); !text.empty();) {
      std::string_view line = next_line(text);
      const std::string_view key = next_word(line);
      const auto value = [&] { return static_cast<double>(whole_number(next_word(line), 0)); };
      if (key == "intr") board.set(interrupts_, 0, rate_interrupts_.of(value(), now));
      if (key == "ctxt") board.set(switches_, 0, rate_switches_.of(value(), now));
      if (key == "processes") board.set(forks_, 0, rate_forks_.of(value(), now));
      if (key == "procs_running") board.set(running_, 0, value());
      if (key == "procs_blocked") board.set(blocked_, 0, value());
    }
    for (Pressure& p : pressure_) {
      std::string_view text = p.file.text();
      std::string_view line = next_line(text);
      const std::size_t at = line.find("total=");
      const auto total = at == std::string_view::npos ? -1 : whole_number(line.substr(at + 6));
      const double share = p.rate.of(total < 0 ? kUnknown : static_cast<double>(total) * 1e-6, now);
      board.set(p.metric, 0, share > 1 ? 1 : share);  // the Linux kernel adds waiting time later than it passes
    }
  }

 private:
  struct Pressure {
    KernelFile file;
    std::size_t metric;
    Rate rate;
  };
  KernelFile stat_;
  std::vector<Pressure> pressure_;
  Rate rate_interrupts_, rate_switches_, rate_forks_;
  std::size_t running_ = 0, blocked_ = 0, switches_ = 0, interrupts_ = 0, forks_ = 0;
};

const Registration<SystemSource> system_source("system", "run queue, switches, interrupts and pressure, /proc");

}  // namespace
}  // namespace mm::watch
