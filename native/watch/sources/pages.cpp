/// Pages that the kernel moves, from /proc/vmstat. Reading it sums what every CPU has counted, so once a second is
/// enough.
#include "sys/files.hpp"
#include "sys/words.hpp"
#include "watch/source.hpp"

namespace mm::watch {
namespace {

struct Kind {
  const char *key, *metric, *what;
};
constexpr Kind kKinds[] = {
    {"pgmigrate_success", "host.pages_moved", "pages moved to another place, or node, for whatever reason"},
    {"numa_pages_migrated", "host.pages_balanced", "pages that NUMA balancing moved to another node"},
    {"numa_hint_faults", "host.hint_faults", "faults by which NUMA balancing learns who uses a page"},
    {"pgpromote_success", "host.pages_promoted", "pages moved from slow memory to fast"},
};

class Pages : public Source {
 public:
  void open(const Host& host, Board& board) override {
    vmstat_ = KernelFile(host.root + "/proc/vmstat");
    const std::string now(vmstat_.text());
    if (board.components("host") == 0) board.add("host", {{"name", "host"}});
    for (const Kind& kind : kKinds) {
      if (now.find(std::string(kind.key) + " ") == std::string::npos) {
        board.absent(kind.metric,
                     "the kernel does not count these: " + std::string(kind.key) + " is not in /proc/vmstat");
        continue;
      }
      counters_.push_back({&kind, board.add({kind.metric, "1/s", kind.what}), {}});
    }
  }

  void sample(Board& board, double now) override {
    for (std::string_view text = vmstat_.text(); !text.empty();) {
      std::string_view line = next_line(text);
      const std::string_view key = next_word(line);
      for (Counter& c : counters_)
        if (key == c.kind->key)
          board.set(c.metric, 0, c.rate.of(static_cast<double>(whole_number(next_word(line), 0)), now));
    }
  }

  double least_period() const override { return 1; }

 private:
  struct Counter {
    const Kind* kind;
    std::size_t metric;
    Rate rate;
  };
  KernelFile vmstat_;
  std::vector<Counter> counters_;
};

const Registration<Pages> pages_source("pages", "pages that the kernel moves, /proc/vmstat");

}  // namespace
}  // namespace mm::watch
