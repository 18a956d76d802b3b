/// Use of every CPU, from /proc/stat, usually in ticks of 10 ms: a window of 0.1 s has ten of them.
#include <array>
#include <unordered_map>

#include "sys/files.hpp"
#include "sys/words.hpp"
#include "watch/source.hpp"

namespace mm::watch {
namespace {

class Cpus : public Source {
 public:
  void open(const Host& host, Board& board) override {
    stat_ = KernelFile(host.root + "/proc/stat");
    if (!stat_) {
      board.absent("cpu.busy", "/proc/stat cannot be read");
      return;
    }
    for (std::size_t i = 0; i < host.cpus.size(); ++i) place_[host.cpus[i]] = i;
    last_.resize(host.cpus.size());
    busy_ = board.add({"cpu.busy", "1", "time neither idle nor waiting for I/O", "wall time"});
    user_ = board.add({"cpu.user", "1", "time in user mode", "wall time"});
    system_ = board.add({"cpu.system", "1", "time in the Linux kernel", "wall time"});
    interrupts_ = board.add({"cpu.interrupts", "1", "time in interrupts", "wall time"});
    steal_ = board.add({"cpu.steal", "1", "time that the hypervisor took away", "wall time"});
  }

  void sample(Board& board, double now) override {
    (void)now;  // the window is the sum of a CPU's ticks, which stays consistent if the Linux kernel accounts late
    ++round_;
    for (std::string_view text = stat_.text(); !text.empty();) {
      std::string_view line = next_line(text);
      const std::string_view word = next_word(line);
      if (word.substr(0, 3) != "cpu") break;  // lines of CPUs come first
      if (word.size() == 3) continue;
      const auto place = place_.find(static_cast<int>(whole_number(word.substr(3))));
      if (place == place_.end()) continue;
      Ticks t;
      for (auto& v : t.of) v = whole_number(next_word(line), 0);
      Ticks& previous = last_[place->second];
      t.round = round_;
      if (previous.round == round_ - 1) write(board, place->second, previous, t);
      previous = t;
    }
  }

 private:
  struct Ticks {
    std::array<std::int64_t, 8> of{};  // user nice system idle iowait irq softirq steal
    std::uint64_t round = 0;
  };

  void write(Board& board, std::size_t cpu, const Ticks& a, const Ticks& b) const {
    std::array<double, 8> d{};
    double all = 0;
    for (std::size_t i = 0; i < d.size(); ++i) {
      d[i] = static_cast<double>(b.of[i] - a.of[i]);
      if (d[i] < 0) d[i] = 0;  // idle and iowait may decrease slightly
      all += d[i];
    }
    if (all <= 0) return;
    board.set(busy_, cpu, (all - d[3] - d[4]) / all);
    board.set(user_, cpu, (d[0] + d[1]) / all);
    board.set(system_, cpu, d[2] / all);
    board.set(interrupts_, cpu, (d[5] + d[6]) / all);
    board.set(steal_, cpu, d[7] / all);
  }

  KernelFile stat_;
  std::unordered_map<int, std::size_t> place_;
  std::vector<Ticks> last_;
  std::uint64_t round_ = 0;
  std::size_t busy_ = 0, user_ = 0, system_ = 0, interrupts_ = 0, steal_ = 0;
};

const Registration<Cpus> cpu_source("cpu", "time of every CPU, /proc/stat");

}  // namespace
}  // namespace mm::watch
