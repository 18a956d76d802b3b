/// Memory traffic of every last-level cache, from resctrl's bandwidth monitoring (Intel MBM, AMD, Arm MPAM). The Linux
/// kernel keeps these counters without performance events, and reading them needs only access to the mounted tree.
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "sys/files.hpp"
#include "sys/words.hpp"
#include "watch/source.hpp"

namespace mm::watch {
namespace {

class Resctrl : public Source {
 public:
  void open(const Host& host, Board& board) override {
    const std::string folder = host.root + "/sys/fs/resctrl/mon_data/";
    for (const std::string& name : names_in(folder)) {
      if (!name.starts_with("mon_L3_")) continue;
      const auto domain = whole_number(std::string_view(name).substr(7));
      Domain d{KernelFile(folder + name + "/mbm_total_bytes"), KernelFile(folder + name + "/mbm_local_bytes"), {}, {}};
      if (domain < 0 || !d.total) continue;
      domains_.push_back(std::move(d));
      board.add("l3", {{"name", "L3 " + std::to_string(domain)}, {"number", domain}});
    }
    if (domains_.empty()) {
      const auto [reason, hint] = absence(host);
      board.absent("l3.total", reason, hint);
      return;
    }
    total_ = board.add({"l3.total", "B/s", "traffic between this cache and memory of all nodes"});
    local_ = board.add({"l3.local", "B/s", "traffic between this cache and its node's memory"});
  }

  void sample(Board& board, double now) override {
    for (std::size_t d = 0; d < domains_.size(); ++d) {
      board.set(total_, d, domains_[d].total_rate.of(bytes(domains_[d].total), now));
      board.set(local_, d, domains_[d].local_rate.of(bytes(domains_[d].local), now));
    }
  }

 private:
  /// Returns why there are no counters, and the command that provides them; "" if no command does.
  static std::pair<std::string, std::string> absence(const Host& host) {
    const std::string folder = host.root + "/sys/fs/resctrl";
    const std::vector<std::string> names = names_in(folder);
    const auto has = [&](const char* name) { return std::find(names.begin(), names.end(), name) != names.end(); };
    if (has("info") || has("schemata"))
      return {has("mon_data") && ::access((folder + "/mon_data").c_str(), R_OK) != 0
                  ? "resctrl is mounted, but its monitoring is not readable"
                  : "resctrl is mounted, but without bandwidth monitoring",
              ""};
    if (host.cpuinfo.find(" cqm_mbm_total") != std::string::npos || ::access(folder.c_str(), F_OK) == 0)
      return {"resctrl is not mounted", "mount -t resctrl resctrl /sys/fs/resctrl"};
    if (host.cpuinfo.empty()) return {"neither resctrl nor the processor's description is readable", ""};
    return {"the processor or the hypervisor does not support bandwidth monitoring", ""};
  }

  /// Returns the value of a counter; unknown if it reads "Unavailable" or "Error", as it does after it has been
  /// reassigned.
  static double bytes(KernelFile& file) {
    std::string_view text = file.text();
    std::string_view line = next_line(text);
    const auto value = whole_number(next_word(line));
    return value < 0 ? kUnknown : static_cast<double>(value);
  }

  struct Domain {
    KernelFile total, local;
    Rate total_rate, local_rate;
  };
  std::vector<Domain> domains_;
  std::size_t total_ = 0, local_ = 0;
};

const Registration<Resctrl> resctrl_source("resctrl", "memory traffic of every last-level cache, /sys/fs/resctrl");

}  // namespace
}  // namespace mm::watch
