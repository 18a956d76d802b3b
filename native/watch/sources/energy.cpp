/// Power of packages and of their memory, from the powercap tree (RAPL), whose energy counters wrap around.
#include "sys/files.hpp"
#include "sys/words.hpp"
#include "watch/source.hpp"

namespace mm::watch {
namespace {

class Energy : public Source {
 public:
  void open(const Host& host, Board& board) override {
    const std::string folder = host.root + "/sys/class/powercap/";
    bool hidden = false;
    for (const std::string& name : names_in(folder)) {
      // intel-rapl:0 is a package, intel-rapl:0:1 a part of it; AMD processors use the same names.
      if (!name.starts_with("intel-rapl:")) continue;
      const std::string zone = folder + name + "/", label = first_line(zone + "name");
      if (label.empty()) continue;
      KernelFile energy(zone + "energy_uj");
      if (!energy) {
        hidden = true;
        continue;
      }
      zones_.push_back({std::move(energy), static_cast<double>(number_in(zone + "max_energy_range_uj", 0)) * 1e-6, {}});
      const bool part = name.find(':') != name.rfind(':');
      const std::string prefix = part ? first_line(folder + name.substr(0, name.rfind(':')) + "/name") + " " : "";
      board.add("power", {{"name", prefix + label}, {"kind", part ? label : "package"}});
    }
    if (zones_.empty()) {
      board.absent("power", hidden ? "only root may read the energy counters" : "no energy counters (RAPL) here",
                   hidden ? "chmod o+r /sys/class/powercap/intel-rapl:*/energy_uj, or run as root" : "");
      return;
    }
    watts_ = board.add({"power.drawn", "W", "power, from the processor's energy counters"});
  }

  void sample(Board& board, double now) override {
    for (std::size_t z = 0; z < zones_.size(); ++z) {
      Zone& zone = zones_[z];
      std::string_view text = zone.energy.text();
      std::string_view line = next_line(text);
      const auto microjoules = whole_number(next_word(line));
      double joules = microjoules < 0 ? kUnknown : static_cast<double>(microjoules) * 1e-6;
      if (joules + zone.wrapped < zone.last && zone.range > 0) zone.wrapped += zone.range;
      joules += zone.wrapped;
      if (joules == joules) zone.last = joules;
      board.set(watts_, z, zone.rate.of(joules, now));
    }
  }

 private:
  struct Zone {
    KernelFile energy;
    double range;
    Rate rate;
    double wrapped = 0, last = 0;
  };
  std::vector<Zone> zones_;
  std::size_t watts_ = 0;
};

const Registration<Energy> energy_source("energy", "power of packages and memory, /sys/class/powercap");

}  // namespace
}  // namespace mm::watch
