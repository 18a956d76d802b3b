/// Page migration of the Linux kernel, from /proc/vmstat. Reading it sums the counters of all CPUs, so once a second is
/// enough.
#include "sys/files.hpp"
#include "sys/words.hpp"
#include "watch/source.hpp"

namespace mm::watch {
namespace {

struct VmstatCounter {
  const char *key, *metric, *what;
};
constexpr VmstatCounter kCounters[] = {
    {"pgmigrate_success", "host.pages_moved", "pages migrated, for any reason"},
    {"numa_pages_migrated", "host.pages_balanced", "pages that NUMA balancing migrated to another node"},
    {"numa_hint_faults", "host.hint_faults", "hinting faults of NUMA balancing"},
    {"pgpromote_success", "host.pages_promoted", "pages promoted from slow to fast memory"},
};

class PageMigrationSource : public Source {
 public:
  void open(const Host& host, Board& board) override {
    vmstat_ = KernelFile(host.root + "/proc/vmstat");
    const std::string text(vmstat_.text());
    if (board.components("host") == 0) board.add("host", {{"name", "host"}});
    for (const VmstatCounter& counter : kCounters) {
      if (text.find(std::string(counter.key) + " ") == std::string::npos) {
        board.absent(counter.metric,
                     "the Linux kernel does not count these: " + std::string(counter.key) + " is not in /proc/vmstat");
        continue;
      }
      counters_.push_back({&counter, board.add({counter.metric, "1/s", counter.what}), {}});
    }
  }

  void sample(Board& board, double now) override {
    for (std::string_view text = vmstat_.text(); !text.empty();) {
      std::string_view line = next_line(text);
      const std::string_view key = next_word(line);
      for (Counter& c : counters_)
        if (key == c.source->key)
          board.set(c.metric, 0, c.rate.of(static_cast<double>(whole_number(next_word(line), 0)), now));
    }
  }

  double min_period() const override { return 1; }

 private:
  struct Counter {
    const VmstatCounter* source;
    std::size_t metric;
    Rate rate;
  };
  KernelFile vmstat_;
  std::vector<Counter> counters_;
};

const Registration<PageMigrationSource> pages_source("pages", "page migration, /proc/vmstat");

}  // namespace
}  // namespace mm::watch
