/// Disks and network interfaces, from /proc/diskstats and /sys/class/net.
#include <algorithm>
#include <cmath>

#include "sys/files.hpp"
#include "sys/words.hpp"
#include "watch/source.hpp"

namespace mm::watch {
namespace {

class InputOutput : public Source {
 public:
  void open(const Host& host, Board& board) override {
    disks_ = KernelFile(host.root + "/proc/diskstats");
    first_ = board.components("io");  // counted I/O stacks come first
    const std::string block = host.root + "/sys/block/", net = host.root + "/sys/class/net/";
    for (const std::string& name : names_in(block)) {
      if (name.starts_with("loop") || name.starts_with("ram") || name.starts_with("zram")) continue;
      if (number_in(block + name + "/size", 0) <= 0) continue;
      devices_.push_back({name, {}, {}, 0, {}});
      place(host, board, block + name, {{"name", name}, {"kind", "disk"}});
    }
    first_net_ = devices_.size();
    for (const std::string& name : names_in(net)) {
      if (name == "lo" || first_line(net + name + "/operstate") == "down") continue;
      const std::string folder = net + name + "/";
      // Speed in Mb/s per direction; virtual interfaces report none, or -1.
      const auto speed = number_in(folder + "speed", -1);
      devices_.push_back({name,
                          KernelFile(folder + "statistics/rx_bytes"),
                          KernelFile(folder + "statistics/tx_bytes"),
                          speed > 0 ? static_cast<double>(speed) * 1e6 / 8 : 0,
                          {}});
      if (speed <= 0) board.absent("io.busy:" + name, "the interface does not report its speed");
      place(host, board, net + name, {{"name", name}, {"kind", "network"}});
    }
    if (devices_.empty()) {
      board.absent("io", "no disk or network interface found");
      return;
    }
    busy_ = board.add({"io.busy", "1", "disks: time with a request; networks: the fuller direction",
                       "wall time; the interface's speed"});
    in_ = board.add({"io.in", "B/s", "read, or received"});
    out_ = board.add({"io.out", "B/s", "written, or sent"});
  }

  void sample(Board& board, double now) override {
    for (std::string_view text = disks_.text(); !text.empty();) {
      std::string_view line = next_line(text);
      next_word(line), next_word(line);
      const std::string_view name = next_word(line);
      for (std::size_t d = 0; d < first_net_; ++d) {
        if (devices_[d].name != name) continue;
        double field[10] = {};
        for (double& f : field) f = static_cast<double>(whole_number(next_word(line), 0));
        board.set(in_, first_ + d, devices_[d].rates[0].of(field[2] * 512, now));
        board.set(out_, first_ + d, devices_[d].rates[1].of(field[6] * 512, now));
        board.set(busy_, first_ + d,
                  std::min(devices_[d].rates[2].of(field[9] / 1000, now), 1.0));  // an unknown rate stays unknown
      }
    }
    for (std::size_t d = first_net_; d < devices_.size(); ++d) {
      Device& device = devices_[d];
      const auto bytes = [](KernelFile& file) {
        std::string_view text = file.text();
        std::string_view line = next_line(text);
        const auto value = whole_number(next_word(line));
        return value < 0 ? kUnknown : static_cast<double>(value);
      };
      const double received = device.rates[0].of(bytes(device.in), now),
                   sent = device.rates[1].of(bytes(device.out), now);
      board.set(in_, first_ + d, received);
      board.set(out_, first_ + d, sent);
      if (device.speed > 0 && received == received && sent == sent)
        board.set(busy_, first_ + d, std::fmin(1, std::fmax(received, sent) / device.speed));
    }
  }

 private:
  struct Device {
    std::string name;
    KernelFile in, out;
    double speed;
    Rate rates[3];
  };

  static void place(const Host& host, Board& board, const std::string& folder, json about) {
    const auto node = number_in(folder + "/device/numa_node", -1);
    for (std::size_t n = 0; n < host.nodes.size(); ++n)
      if (host.nodes[n] == node) about["node"] = n;
    board.add("io", std::move(about));
  }

  KernelFile disks_;
  std::vector<Device> devices_;
  std::size_t first_ = 0, first_net_ = 0, busy_ = 0, in_ = 0, out_ = 0;
};

const Registration<InputOutput> io_source("io", "disks and networks, /proc/diskstats and /sys/class/net");

}  // namespace
}  // namespace mm::watch
