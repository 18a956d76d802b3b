/// meshmark-place migrate: moves the pages of a running program, page by page, so that what did not move has a reason.
#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <system_error>
#include <thread>

#include "arguments.hpp"
#include "clock.hpp"
#include "command.hpp"
#include "error.hpp"
#include "observe.hpp"
#include "options.hpp"
#include "pages.hpp"
#include "sys/files.hpp"
#include "sys/procfs.hpp"
#include "sys/words.hpp"

namespace mm::place {
namespace {

constexpr std::size_t kBatch = 4096;              ///< pages a call
constexpr int kRounds = 4;                        ///< so often a page that is busy is tried
constexpr std::uint64_t kDealt = 2ULL << 20;      ///< B that go to one node before the next gets its share
constexpr int kMove = 1 << 1, kMoveAll = 1 << 2;  ///< MPOL_MF_MOVE, MPOL_MF_MOVE_ALL
constexpr int kUntold = -9999;
constexpr std::uint64_t kSparse = 1ULL << 30;  ///< B of a mapping from which on it may be reserved and almost empty

/// What PAGEMAP_SCAN takes and gives (Linux 6.7), younger than some kernels' headers: the numbers are the kernel's
/// interface.
struct Scan {
  std::uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
  std::uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
struct Region {
  std::uint64_t start, end, categories;
};
constexpr unsigned long kScan = _IOWR('f', 16, Scan);
constexpr std::uint64_t kIsFile = 1 << 2, kIsPresent = 1 << 3, kIsZero = 1 << 5;

struct Wish {
  std::vector<int> to, from;
  bool shared = false;
  bool talk = false;
};

struct Outcome {
  pid_t process = 0;
  std::uint64_t moved = 0, wanted = 0;         ///< B
  std::map<std::string, std::uint64_t> left;   ///< reason → B
  std::map<int, std::uint64_t> before, after;  ///< node → B
  double seconds = 0;
};

/// What cannot be undone by trying again: names the remedy.
[[noreturn]] void refuse(pid_t process, int why) {
  const std::string who = "process " + std::to_string(process);
  if (why == ESRCH) throw Failure(who + " has ended");
  if (why == EPERM || why == EACCES)
    throw Failure("no permission to move the pages of " + who +
                  ": run as its user, or with CAP_SYS_NICE and CAP_SYS_PTRACE");
  if (why == ENOSYS) throw Absent("this kernel cannot move pages", "a kernel with CONFIG_MIGRATION and CONFIG_NUMA");
  throw Failure("the kernel moves no pages of " + who + ": " + std::strerror(why));
}

/// Where pages are: a node, or the negative error of one that is not there.
std::vector<int> ask(pid_t process, const std::vector<void*>& pages) {
  std::vector<int> nodes(pages.size(), kUntold);
  const auto call = [&] {
    if (::syscall(SYS_move_pages, process, pages.size(), pages.data(), nullptr, nodes.data(), 0) < 0)
      refuse(process, errno);
  };
  call();
  // Some kernels (6.1) tell nothing of a page that waits for the hinting fault of NUMA balancing, until it is read.
  bool hidden = false;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (nodes[i] != -ENOENT) continue;
    char byte = 0;
    const iovec to{&byte, 1}, from{pages[i], 1};
    hidden = ::process_vm_readv(process, &to, 1, &from, 1, 0) == 1 || hidden;
  }
  if (hidden) call();
  return nodes;
}

class Mover {
 public:
  Mover(pid_t process, const Wish& wish) : process_(process), wish_(wish), room_(wish.to) {}

  Outcome run() {
    const double begin = wall_s();
    out_.process = process_;
    out_.before = count_pages(process_).own;
    pagemap_ = ::open(("/proc/" + std::to_string(process_) + "/pagemap").c_str(), O_RDONLY | O_CLOEXEC);
    if (pagemap_ < 0) refuse(process_, errno == ENOENT ? ESRCH : errno);
    struct Close {
      int file;
      ~Close() { ::close(file); }
    } close{pagemap_};
    for (const Range& range : ranges()) walk(range);
    flush();
    if (told_) std::fprintf(stderr, "\n");
    out_.after = count_pages(process_).own;
    out_.seconds = wall_s() - begin;
    return out_;
  }

 private:
  struct Range {
    std::uint64_t begin, end, page;
    bool private_file;      ///< only its written pages are the process's own
    std::uint64_t counted;  ///< pages that the kernel counts in it, by numa_maps
  };

  std::vector<Range> ranges() const {
    const std::string folder = "/proc/" + std::to_string(process_);
    // Explicit huge pages are moved by their first address.
    std::map<std::uint64_t, std::uint64_t> huge, counted;
    const std::string numa = read_text(folder + "/numa_maps");
    for (std::size_t at = 0; at < numa.size();) {
      const std::size_t end = std::min(numa.find('\n', at), numa.size());
      const std::string line = numa.substr(at, end - at) + ' ';
      const std::uint64_t address = std::strtoull(line.c_str(), nullptr, 16);
      if (const std::size_t size = line.find("kernelpagesize_kB=");
          line.find(" huge ") != std::string::npos && size != std::string::npos)
        huge[address] = leading_number(std::string_view(line).substr(size + 18)) << 10;
      std::uint64_t& pages = counted[address];
      for (std::size_t n = line.find(" N"); n != std::string::npos; n = line.find(" N", n + 1)) {
        const std::size_t equals = line.find_first_not_of("0123456789", n + 2);
        if (equals != std::string::npos && equals > n + 2 && line[equals] == '=')
          pages += leading_number(std::string_view(line).substr(equals + 1));
      }
      at = end + 1;
    }
    std::vector<Range> found;
    const std::string maps = read_text(folder + "/maps");
    if (maps.empty()) refuse(process_, ::kill(process_, 0) == 0 ? EPERM : ESRCH);
    for (std::size_t at = 0; at < maps.size();) {
      const std::size_t end = std::min(maps.find('\n', at), maps.size());
      const std::string line = maps.substr(at, end - at);
      at = end + 1;
      unsigned long long first = 0, last = 0;
      char mode[8] = "";
      int path_at = 0;
      if (std::sscanf(line.c_str(), "%llx-%llx %7s %*s %*s %*s %n", &first, &last, mode, &path_at) < 3) continue;
      const std::string path =
          static_cast<std::size_t>(path_at) < line.size() ? line.substr(static_cast<std::size_t>(path_at)) : "";
      if (path == "[vvar]" || path == "[vdso]" || path == "[vsyscall]" || path == "[vvar_vclock]") continue;
      const bool file = path.starts_with('/') && is_file(path) && !huge.contains(first);
      if (file && mode[3] != 'p') continue;
      found.push_back({first, last, huge.contains(first) ? huge[first] : kPage, file, counted[first]});
    }
    return found;
  }

  /// Takes the pages of a range that are in memory: a range may be reserved and almost empty.
  void walk(const Range& range) {
    if (!scan(range)) read_map(range);
  }

  void take(const Range& range, std::uint64_t address) {
    if (address % range.page != 0) return;
    // Huge pages move as one: a batch ends where one could end.
    if (page_ != range.page || (pages_.size() >= kBatch && address / kDealt != last_ / kDealt)) flush();
    last_ = address;
    page_ = range.page;
    pages_.push_back(reinterpret_cast<void*>(address));  // NOLINT(performance-no-int-to-ptr): of another process
  }

  /// The kernel lists what is there and passes over empty page tables. False where it is too old for that.
  bool scan(const Range& range) {
    if (!scans_) return false;
    std::array<Region, 512> regions{};
    Scan wanted{};
    wanted.size = sizeof wanted;
    wanted.end = range.end;
    wanted.vec = reinterpret_cast<std::uintptr_t>(regions.data());
    wanted.vec_len = regions.size();
    // Of private mappings of files only what was written, which is no longer the file's.
    wanted.category_mask = kIsPresent | kIsZero | (range.private_file ? kIsFile : 0);
    wanted.category_inverted = kIsZero | (range.private_file ? kIsFile : 0);
    for (wanted.start = range.begin; wanted.start < range.end; wanted.start = wanted.walk_end) {
      const int found = ::ioctl(pagemap_, kScan, &wanted);
      if (found < 0 && errno == EINTR) continue;
      if (found < 0 && wanted.start == range.begin && (errno == ENOTTY || errno == EINVAL)) return scans_ = false;
      if (found < 0 || wanted.walk_end <= wanted.start) return true;  // unmapped meanwhile: the recount tells
      for (int i = 0; i < found; ++i)
        for (std::uint64_t at = regions[static_cast<std::size_t>(i)].start;
             at < regions[static_cast<std::size_t>(i)].end; at += kPage)
          take(range, at);
    }
    return true;
  }

  /// Entry by entry, 8 B a page. A large mapping is left where all that the kernel counts in it has been seen.
  void read_map(const Range& range) {
    const bool sparse = range.end - range.begin >= kSparse && !range.private_file;
    if (sparse) flush();
    seen_ = 0;
    std::array<std::uint64_t, 4096> entries{};  // no more than stays in the first cache
    for (std::uint64_t at = range.begin; at < range.end && !(sparse && seen_ >= range.counted);) {
      const std::size_t want = std::min<std::size_t>(entries.size(), (range.end - at) / kPage);
      const ssize_t got = ::pread(pagemap_, entries.data(), want * 8, static_cast<off_t>(at / kPage * 8));
      if (got <= 0) return;  // unmapped meanwhile, or the process has ended: the recount tells
      const std::uint64_t n = static_cast<std::uint64_t>(got) / 8;
      for (std::uint64_t i = 0; i < n; ++i)
        if ((entries[i] >> 63) != 0 && !(range.private_file && (entries[i] >> 61 & 1) != 0))
          take(range, at + i * kPage);
      if (sparse) flush();  // only the kernel's word on a page tells whether it counts
      at += n * kPage;
    }
  }

  bool in(const std::vector<int>& nodes, int node) const {
    return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
  }

  void flush() {
    if (pages_.empty()) return;
    std::vector<void*> todo;
    const std::vector<int> at = ask(process_, pages_);
    for (std::size_t i = 0; i < at.size(); ++i) {
      seen_ += at[i] >= 0 ? 1 : 0;
      if (at[i] >= 0 && !in(wish_.to, at[i]) && (wish_.from.empty() || in(wish_.from, at[i])))
        todo.push_back(pages_[i]);
    }
    pages_.clear();
    out_.wanted += todo.size() * page_;
    std::map<void*, int> reason;
    for (int round = 0; round < kRounds && !todo.empty() && !room_.empty();) {
      // The kernel stops a call at the first page that it cannot move: the last rounds go page by page.
      const std::size_t before = todo.size(), step = round == 0 ? before : 1;
      for (std::size_t first = 0; first < before && !room_.empty(); first += step)
        move(std::vector<void*>(todo.begin() + static_cast<std::ptrdiff_t>(first),
                                todo.begin() + static_cast<std::ptrdiff_t>(std::min(before, first + step))),
             reason);
      // Only where a page is counts, whatever the call said of it.
      std::vector<void*> left;
      const std::vector<int> now = ask(process_, todo);
      for (std::size_t i = 0; i < now.size(); ++i) {
        if (now[i] >= 0 && in(wish_.to, now[i]))
          out_.moved += page_;
        else if (now[i] == -ENOENT || now[i] == -EFAULT)
          out_.left["gone"] += page_;
        else if (reason[todo[i]] == -EACCES)
          out_.left["shared"] += page_;
        else
          left.push_back(todo[i]);
      }
      // A call that moves little of much has met the end of the room, or many that are busy.
      if (round > 0 || before - left.size() <= before / 16) {
        if (++round > 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      todo = std::move(left);
    }
    if (!todo.empty()) out_.left[room_.empty() ? "full" : "busy"] += todo.size() * page_;
    if (wish_.talk && wall_s() > told_at_ + 0.5) {
      std::fprintf(stderr, "\r%llu MiB moved", static_cast<unsigned long long>(out_.moved >> 20));
      told_at_ = wall_s();
      told_ = true;
    }
  }

  void move(const std::vector<void*>& pages, std::map<void*, int>& reason) {
    std::vector<int> nodes(pages.size()), status(pages.size(), kUntold);
    for (std::size_t i = 0; i < pages.size(); ++i)
      nodes[i] = room_[reinterpret_cast<std::uintptr_t>(pages[i]) / std::max(kDealt, page_) % room_.size()];
    const long rc = ::syscall(SYS_move_pages, process_, pages.size(), pages.data(), nodes.data(), status.data(),
                              wish_.shared ? kMoveAll : kMove);
    if (rc < 0 && errno == ENOMEM) {
      // A single page that finds no room says which node has none left.
      if (pages.size() != 1) return;
      const int node = nodes[0];
      if (++no_room_[node] >= kFullAfter || ++no_room_in_all_[node] >= kFullInAll) std::erase(room_, node);
      return;
    }
    if (rc < 0) refuse(process_, errno);
    for (std::size_t i = 0; i < pages.size(); ++i) {
      if (status[i] != kUntold) reason[pages[i]] = status[i];
      if (status[i] >= 0) no_room_[nodes[i]] = 0;
    }
  }

  static inline const auto kPage = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  static constexpr int kFullAfter = 64;   ///< pages in a row without room: the kernel frees some when asked
  static constexpr int kFullInAll = 512;  ///< and so many in all, lest one that is freed now and then keeps it trying
  pid_t process_;
  const Wish& wish_;
  std::vector<int> room_;  ///< targets that may have room
  std::map<int, int> no_room_, no_room_in_all_;
  int pagemap_ = -1;
  bool scans_ = true;
  std::uint64_t seen_ = 0;  ///< pages that the kernel placed on a node
  std::uint64_t page_ = kPage, last_ = 0;
  std::vector<void*> pages_;
  Outcome out_;
  double told_at_ = 0;
  bool told_ = false;
};

void bind_threads(pid_t process, const std::vector<int>& cpus) {
  const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(cpus.back() + 1));
  std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(static_cast<std::size_t>(cpus.back() + 1)),
                                                       [](cpu_set_t* s) { CPU_FREE(s); });
  CPU_ZERO_S(bytes, set.get());
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set.get());
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task", ignored)) {
    const auto id = static_cast<pid_t>(std::stol(task.path().filename().string()));
    if (::sched_setaffinity(id, bytes, set.get()) != 0 && errno != ESRCH)
      throw Failure("thread " + std::to_string(id) + " cannot be bound to CPUs " + cpu_list(cpus) + ": " +
                    (errno == EPERM ? "run as its user, or with CAP_SYS_NICE" : "they are outside its cpuset"));
  }
}

std::vector<int> nodes_of(const std::string& field, const std::string& text, const Machine& machine) {
  const std::vector<int> nodes = parse_cpu_list(field, text);
  std::vector<int> with_memory;
  for (const Node& node : machine.nodes)
    if (node.bytes > 0) with_memory.push_back(node.id);
  for (const int node : nodes) {
    if (std::find(with_memory.begin(), with_memory.end(), node) != with_memory.end()) continue;
    const bool there =
        std::any_of(machine.nodes.begin(), machine.nodes.end(), [&](const Node& n) { return n.id == node; });
    throw UsageError(field, "node " + std::to_string(node) + (there ? " has no memory" : " is not there"),
                     cpu_list(with_memory));
  }
  return nodes;
}

std::string in_mib(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", static_cast<double>(bytes) / (1 << 20));
  return text;
}

const std::map<std::string, std::string>& remedies() {
  static const std::map<std::string, std::string> all{
      {"shared", "shared with another process: --shared (CAP_SYS_NICE)"},
      {"busy", "in use by a device or the kernel: try again"},
      {"full", "no room on the node: free some, or name more nodes"},
      {"gone", "freed meanwhile"}};
  return all;
}

json to_json(const Outcome& out) {
  json left = json::object();
  for (const auto& [reason, n] : out.left) left[reason] = n;
  return {{"process", out.process}, {"wanted_bytes", out.wanted},    {"moved_bytes", out.moved},   {"left_bytes", left},
          {"seconds", out.seconds}, {"before", by_node(out.before)}, {"after", by_node(out.after)}};
}

void print(const Outcome& out) {
  std::printf("process %d: moved %s of %s MiB in %.3f s (%.0f MB/s)\n", out.process, in_mib(out.moved).c_str(),
              in_mib(out.wanted).c_str(), out.seconds,
              static_cast<double>(out.moved) / 1e6 / std::max(out.seconds, 1e-9));
  for (const auto& [reason, bytes] : out.left)
    std::printf("  %s MiB did not: %s\n", in_mib(bytes).c_str(), remedies().at(reason).c_str());
  std::set<int> nodes;
  for (const auto* count : {&out.before, &out.after})
    for (const auto& [node, bytes] : *count) nodes.insert(node);
  std::printf("  node  before (MiB)  after (MiB)\n");
  const auto at = [](const std::map<int, std::uint64_t>& count, int node) {
    const auto found = count.find(node);
    return in_mib(found == count.end() ? 0 : found->second);
  };
  for (const int node : nodes)
    std::printf("  %4d  %12s  %11s\n", node, at(out.before, node).c_str(), at(out.after, node).c_str());
}

}  // namespace

int migrate_verb(int argc, char** argv) {
  Arguments app{
      "Moves the memory of a running program to other nodes, and reports what could not be moved. Pages of files\n"
      "and shared libraries stay; new pages follow the policy of the program. Exit status 1: some pages were left.\n\n"
      "example: meshmark migrate 4711 --to 1",
      "meshmark migrate"};
  std::string pid_text, to, from;
  bool children = false, threads = false, as_json = false;
  Wish wish;
  app.add("PID", pid_text, "process to migrate").required();
  app.add("--to", to, "target nodes; several nodes receive 2 MiB each in turn").required();
  app.add("--from", from, "move only pages on these nodes [all]");
  app.flag("--children", children, "include descendants");
  app.flag("--with-threads", threads, "first bind its threads to the CPUs of the target nodes");
  app.renamed("--threads-too", "--with-threads");
  app.flag("--shared", wish.shared, "include pages shared with other processes (needs CAP_SYS_NICE)");
  app.flag("--json", as_json, "print one JSON object");
  if (!app.read(argc, argv, "migrate")) return 0;
  const pid_t root = read_pid(pid_text);
  const Machine machine = machine_of("host");
  wish.to = nodes_of("--to", to, machine);
  if (!from.empty()) wish.from = nodes_of("--from", from, machine);
  wish.talk = ::isatty(STDERR_FILENO) == 1;

  const std::string status = read_text("/proc/" + pid_text + "/status");
  if (status.empty()) throw Failure("PID: there is no process " + pid_text);
  const std::string mems = value_of(status, "Mems_allowed_list:");
  const std::vector<int> allowed = ids_of(mems);
  for (const int node : wish.to)
    if (!allowed.empty() && !std::binary_search(allowed.begin(), allowed.end(), node))
      throw UsageError("--to", "node " + std::to_string(node) + " is outside the cpuset of process " + pid_text, mems);
  std::vector<pid_t> tree{root};
  if (children)
    for (const pid_t child : descendants(root)) tree.push_back(child);
  if (threads) {
    std::set<int> cpus;
    for (const Node& node : machine.nodes)
      if (std::find(wish.to.begin(), wish.to.end(), node.id) != wish.to.end())
        cpus.insert(node.cpus.begin(), node.cpus.end());
    if (cpus.empty()) throw UsageError("--with-threads", "nodes " + to + " have no CPUs", "nodes with CPUs");
    for (const pid_t process : tree) bind_threads(process, {cpus.begin(), cpus.end()});
  }
  bool whole = true;
  json all = json::array();
  for (const pid_t process : tree) {
    try {
      const Outcome out = Mover(process, wish).run();
      std::uint64_t left = 0;
      for (const auto& [reason, bytes] : out.left) left += reason == "gone" ? 0 : bytes;
      whole = whole && left == 0;
      if (as_json)
        all.push_back(to_json(out));
      else
        print(out);
    } catch (const Failure&) {
      if (process == root || ::kill(process, 0) == 0) throw;  // a child may end meanwhile
    }
  }
  if (as_json) std::cout << to_line({{"to", wish.to}, {"processes", all}}) << "\n";
  return whole ? 0 : 1;
}

}  // namespace mm::place
