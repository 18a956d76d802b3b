/// Memory of every node, from its meminfo and numastat.
#include "sys/files.hpp"
#include "sys/words.hpp"
#include "watch/source.hpp"

namespace mm::watch {
namespace {

class Nodes : public Source {
 public:
  void open(const Host& host, Board& board) override {
    for (const int n : host.nodes) {
      const std::string folder = host.root + "/sys/devices/system/node/node" + std::to_string(n) + "/";
      files_.push_back({KernelFile(folder + "meminfo"), KernelFile(folder + "numastat")});
      if (!files_.back().memory && host.nodes.size() == 1)
        files_.back().memory = KernelFile(host.root + "/proc/meminfo");
    }
    total_ = board.add({"node.total", "B", "memory"});
    used_ = board.add({"node.used", "B", "memory that is neither free nor cache"});
    share_ = board.add({"node.full", "1", "memory that is neither free nor cache", "the node's memory"});
    dirty_ = board.add({"node.dirty", "B", "cached data not yet written to disk"});
    huge_ = board.add({"node.huge", "B", "anonymous memory in transparent huge pages"});
    for (std::size_t k = 0; k < kCounters; ++k) counters_[k] = board.add({kNames[k], "1/s", kWords[k]});
    rates_.resize(files_.size() * kCounters);
  }

  void sample(Board& board, double now) override {
    for (std::size_t n = 0; n < files_.size(); ++n) {
      double total = kUnknown, free = kUnknown, cache = 0;
      for (std::string_view text = files_[n].memory.text(); !text.empty();) {
        std::string_view line = next_line(text);
        std::string_view key = next_word(line);
        if (key == "Node") next_word(line), key = next_word(line);
        const double bytes = 1024.0 * static_cast<double>(whole_number(next_word(line), 0));
        if (key == "MemTotal:") total = bytes;
        if (key == "MemFree:") free = bytes;
        if (key == "FilePages:" || key == "SReclaimable:" || key == "Cached:" || key == "Buffers:") cache += bytes;
        if (key == "Shmem:") cache -= bytes;
        if (key == "Dirty:") board.set(dirty_, n, bytes);
        if (key == "AnonHugePages:") board.set(huge_, n, bytes);
      }
      const double used = total - free - cache;
      board.set(total_, n, total);
      board.set(used_, n, used);
      board.set(share_, n, total > 0 ? used / total : kUnknown);
      for (std::string_view text = files_[n].pages.text(); !text.empty();) {
        std::string_view line = next_line(text);
        const std::string_view key = next_word(line);
        for (std::size_t k = 0; k < kCounters; ++k)
          if (key == kKeys[k])
            board.set(counters_[k], n,
                      rates_[n * kCounters + k].of(static_cast<double>(whole_number(next_word(line), 0)), now));
      }
    }
  }

 private:
  static constexpr std::size_t kCounters = 4;
  static constexpr const char* kKeys[] = {"numa_hit", "numa_miss", "numa_foreign", "other_node"};
  static constexpr const char* kNames[] = {"node.hit", "node.miss", "node.foreign", "node.other"};
  static constexpr const char* kWords[] = {
      "pages allocated on the requested node", "pages allocated here although another node was requested",
      "pages requested here but allocated elsewhere", "pages allocated here by programs on other nodes"};
  struct Files {
    KernelFile memory, pages;
  };
  std::vector<Files> files_;
  std::vector<Rate> rates_;
  std::size_t total_ = 0, used_ = 0, share_ = 0, dirty_ = 0, huge_ = 0, counters_[kCounters] = {};
};

const Registration<Nodes> node_source("node", "memory of every node, its meminfo and numastat");

}  // namespace
}  // namespace mm::watch
