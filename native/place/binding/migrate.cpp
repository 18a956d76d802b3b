/// meshmark-place migrate: moves the pages of a running program page by page, so that the reason is known for each page
/// that stays.
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

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/options/arguments.hpp"
#include "base/options/options.hpp"
#include "place/binding/pagemap.hpp"
#include "place/binding/pages.hpp"
#include "place/command.hpp"
#include "place/observe.hpp"
#include "sys/files.hpp"
#include "sys/procfs.hpp"
#include "sys/words.hpp"

namespace mm::place {
namespace {

constexpr std::size_t kBatch = 4096;              ///< pages per call
constexpr int kRounds = 4;                        ///< attempts for busy pages
constexpr std::uint64_t kDealt = 2ULL << 20;      ///< B that go to one node before the next one receives its share
constexpr int kMove = 1 << 1, kMoveAll = 1 << 2;  ///< MPOL_MF_MOVE, MPOL_MF_MOVE_ALL
constexpr int kUnreported = -9999;
constexpr std::uint64_t kSparse = 1ULL << 30;  ///< B; a mapping of this size or more may be reserved but almost empty

struct MoveOptions {
  std::vector<int> to, from;
  bool shared = false;
  bool spread = false;   ///< also move pages between the target nodes, so that each receives its share
  bool dry_run = false;  ///< only count the pages that would move
  bool show_progress = false;
};

struct ProcessMigration {
  pid_t process = 0;
  std::uint64_t moved = 0, total = 0;          ///< B
  std::map<std::string, std::uint64_t> left;   ///< reason → B
  std::map<int, std::uint64_t> before, after;  ///< node → B
  double seconds = 0;
};

/// Throws for errors that a retry cannot resolve, with the remedy.
[[noreturn]] void refuse(pid_t process, int error) {
  const std::string who = "process " + std::to_string(process);
  if (error == ESRCH) throw Failure(who + " has ended");
  if (error == EPERM || error == EACCES)
    throw Failure("no permission to move the pages of " + who +
                  ": run as its user, or with CAP_SYS_NICE and CAP_SYS_PTRACE");
  if (error == ENOSYS)
    throw Absent("this Linux kernel cannot move pages", "a kernel with CONFIG_MIGRATION and CONFIG_NUMA");
  throw Failure("cannot move the pages of " + who + ": " + std::strerror(error));
}

/// Returns the node of each page, or a negative error if it is not in memory.
std::vector<int> query_nodes(pid_t process, const std::vector<void*>& pages) {
  std::vector<int> nodes(pages.size(), kUnreported);
  const auto call = [&] {
    if (::syscall(SYS_move_pages, process, pages.size(), pages.data(), nullptr, nodes.data(), 0) < 0)
      refuse(process, errno);
  };
  call();
  // Some Linux kernels (6.1) report no node for a page that awaits a hinting fault of NUMA balancing, until it is read.
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
  Mover(pid_t process, const MoveOptions& options) : process_(process), options_(options), room_(options.to) {}

  ProcessMigration run() {
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
    bool private_file;      ///< only its written pages belong to the process
    std::uint64_t counted;  ///< pages in memory according to numa_maps
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
    std::vector<Range> movable;
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
      movable.push_back({first, last, huge.contains(first) ? huge[first] : kPage, file, counted[first]});
    }
    return movable;
  }

  /// Adds the pages of a range that are in memory; the range may be almost empty.
  void walk(const Range& range) {
    if (!scan(range)) read_map(range);
  }

  void add_page(const Range& range, std::uint64_t address) {
    if (address % range.page != 0) return;
    // Huge pages move as a unit: a batch only ends at a possible end of one.
    if (page_ != range.page || (pages_.size() >= kBatch && address / kDealt != last_ / kDealt)) flush();
    last_ = address;
    page_ = range.page;
    pages_.push_back(
        reinterpret_cast<void*>(address));  // NOLINT(performance-no-int-to-ptr): address in another process
  }

  /// Adds the present pages, which the Linux kernel lists without reading empty page tables. Returns false if the
  /// kernel is too old for that.
  bool scan(const Range& range) {
    if (!scans_) return false;
    std::array<PagemapRegion, 512> regions{};
    PagemapScan scan{};
    scan.size = sizeof scan;
    scan.end = range.end;
    scan.vec = reinterpret_cast<std::uintptr_t>(regions.data());
    scan.vec_len = regions.size();
    // For private mappings of files, only written pages count, because they no longer belong to the file.
    scan.category_mask = kIsPresent | kIsZero | (range.private_file ? kIsFile : 0);
    scan.category_inverted = kIsZero | (range.private_file ? kIsFile : 0);
    for (scan.start = range.begin; scan.start < range.end; scan.start = scan.walk_end) {
      const int region_count = ::ioctl(pagemap_, kPagemapScan, &scan);
      if (region_count < 0 && errno == EINTR) continue;
      if (region_count < 0 && scan.start == range.begin && (errno == ENOTTY || errno == EINVAL)) return scans_ = false;
      if (region_count < 0 || scan.walk_end <= scan.start) return true;  // unmapped meanwhile: the final count shows it
      for (int i = 0; i < region_count; ++i)
        for (std::uint64_t at = regions[static_cast<std::size_t>(i)].start;
             at < regions[static_cast<std::size_t>(i)].end; at += kPage)
          add_page(range, at);
    }
    return true;
  }

  /// Reads all entries, 8 B per page. Stops in a large mapping once all its pages in memory have been found.
  void read_map(const Range& range) {
    const bool sparse = range.end - range.begin >= kSparse && !range.private_file;
    if (sparse) flush();
    seen_ = 0;
    std::array<std::uint64_t, 4096> entries{};  // fits in the first-level cache
    for (std::uint64_t at = range.begin; at < range.end && !(sparse && seen_ >= range.counted);) {
      const std::size_t requested = std::min<std::size_t>(entries.size(), (range.end - at) / kPage);
      const ssize_t received = ::pread(pagemap_, entries.data(), requested * 8, static_cast<off_t>(at / kPage * 8));
      if (received <= 0) return;  // unmapped, or the process has ended: the final count shows it
      const std::uint64_t n = static_cast<std::uint64_t>(received) / 8;
      for (std::uint64_t i = 0; i < n; ++i)
        if ((entries[i] >> 63) != 0 && !(range.private_file && (entries[i] >> 61 & 1) != 0))
          add_page(range, at + i * kPage);
      if (sparse) flush();  // only a query by the Linux kernel shows whether a page counts
      at += n * kPage;
    }
  }

  static bool in(const std::vector<int>& nodes, int node) {
    return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
  }

  /// Returns the node that receives a page if the pages are dealt to these nodes in turn.
  int dealt_node(const void* page, const std::vector<int>& nodes) const {
    return nodes[reinterpret_cast<std::uintptr_t>(page) / std::max(kDealt, page_) % nodes.size()];
  }

  bool arrived(const void* page, int node) const {
    return options_.spread ? node == dealt_node(page, options_.to) : in(options_.to, node);
  }

  /// Returns whether no node that may receive the page has room.
  bool full(const void* page) const {
    return options_.spread ? !in(room_, dealt_node(page, options_.to)) : room_.empty();
  }

  void flush() {
    if (pages_.empty()) return;
    std::vector<void*> todo;
    const std::vector<int> nodes = query_nodes(process_, pages_);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      seen_ += nodes[i] >= 0 ? 1 : 0;
      if (nodes[i] >= 0 && !arrived(pages_[i], nodes[i]) && (options_.from.empty() || in(options_.from, nodes[i])))
        todo.push_back(pages_[i]);
    }
    pages_.clear();
    out_.total += todo.size() * page_;
    if (options_.dry_run) return;
    std::map<void*, int> reason;
    for (int round = 0; round < kRounds && !todo.empty() && !room_.empty();) {
      // The Linux kernel stops a call at the first page that it cannot move: the last rounds go page by page.
      const std::size_t before = todo.size(), step = round == 0 ? before : 1;
      for (std::size_t first = 0; first < before && !room_.empty(); first += step)
        move(std::vector<void*>(todo.begin() + static_cast<std::ptrdiff_t>(first),
                                todo.begin() + static_cast<std::ptrdiff_t>(std::min(before, first + step))),
             reason);
      // The result of the call is unreliable: query where the pages are.
      std::vector<void*> remaining;
      const std::vector<int> current_nodes = query_nodes(process_, todo);
      for (std::size_t i = 0; i < current_nodes.size(); ++i) {
        if (current_nodes[i] >= 0 && arrived(todo[i], current_nodes[i]))
          out_.moved += page_;
        else if (current_nodes[i] == -ENOENT || current_nodes[i] == -EFAULT)
          out_.left["gone"] += page_;
        else if (reason[todo[i]] == -EACCES)
          out_.left["shared"] += page_;
        else
          remaining.push_back(todo[i]);
      }
      // A call that moves few of many pages has run out of room or met many busy pages.
      if (round > 0 || before - remaining.size() <= before / 16) {
        if (++round > 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      todo = std::move(remaining);
    }
    for (const void* page : todo) out_.left[full(page) ? "full" : "busy"] += page_;
    if (options_.show_progress && wall_s() > told_at_ + 0.5) {
      std::fprintf(stderr, "\r%llu MiB moved", static_cast<unsigned long long>(out_.moved >> 20));
      told_at_ = wall_s();
      told_ = true;
    }
  }

  void move(std::vector<void*> pages, std::map<void*, int>& reason) {
    std::erase_if(pages, [this](const void* page) { return full(page); });
    if (pages.empty()) return;
    std::vector<int> nodes, status(pages.size(), kUnreported);
    for (const void* page : pages) nodes.push_back(dealt_node(page, options_.spread ? options_.to : room_));
    const long rc = ::syscall(SYS_move_pages, process_, pages.size(), pages.data(), nodes.data(), status.data(),
                              options_.shared ? kMoveAll : kMove);
    if (rc < 0 && errno == ENOMEM) {
      // A single page that finds no room identifies a full node.
      if (pages.size() != 1) return;
      const int node = nodes[0];
      if (++no_room_[node] >= kFullAfter || ++no_room_in_all_[node] >= kFullInAll) std::erase(room_, node);
      return;
    }
    if (rc < 0) refuse(process_, errno);
    for (std::size_t i = 0; i < pages.size(); ++i) {
      if (status[i] != kUnreported) reason[pages[i]] = status[i];
      if (status[i] >= 0) no_room_[nodes[i]] = 0;
    }
  }

  static inline const auto kPage = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  static constexpr int kFullAfter = 64;  ///< consecutive pages without room; the Linux kernel frees some on demand
  static constexpr int kFullInAll =
      512;  ///< total pages without room, which bounds the attempts if some are freed now and then
  pid_t process_;
  const MoveOptions& options_;
  std::vector<int> room_;  ///< target nodes that may have room
  std::map<int, int> no_room_, no_room_in_all_;
  int pagemap_ = -1;
  bool scans_ = true;
  std::uint64_t seen_ = 0;  ///< pages found on a node
  std::uint64_t page_ = kPage, last_ = 0;
  std::vector<void*> pages_;
  ProcessMigration out_;
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
  std::vector<int> with_memory;
  for (const Node& node : machine.nodes)
    if (node.bytes > 0) with_memory.push_back(node.id);
  const std::vector<int> nodes = parse_cpu_list(field, text, with_memory);
  for (const int node : nodes) {
    if (std::find(with_memory.begin(), with_memory.end(), node) != with_memory.end()) continue;
    const bool exists =
        std::any_of(machine.nodes.begin(), machine.nodes.end(), [&](const Node& n) { return n.id == node; });
    throw UsageError(field, "node " + std::to_string(node) + (exists ? " has no memory" : " does not exist"),
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
      {"busy", "in use by a device or the Linux kernel: try again"},
      {"full", "no room on the node: free some, or name more nodes"},
      {"gone", "freed meanwhile"}};
  return all;
}

json to_json(const ProcessMigration& out) {
  json left = json::object();
  for (const auto& [reason, n] : out.left) left[reason] = n;
  return {{"process", out.process}, {"wanted_bytes", out.total},     {"moved_bytes", out.moved},   {"left_bytes", left},
          {"seconds", out.seconds}, {"before", by_node(out.before)}, {"after", by_node(out.after)}};
}

void print(const ProcessMigration& out, bool dry_run) {
  if (dry_run) {
    std::printf("process %d: would move %s MiB\n", out.process, in_mib(out.total).c_str());
    return;
  }
  std::printf("process %d: moved %s of %s MiB in %.3f s (%.0f MB/s)\n", out.process, in_mib(out.moved).c_str(),
              in_mib(out.total).c_str(), out.seconds,
              static_cast<double>(out.moved) / 1e6 / std::max(out.seconds, 1e-9));
  for (const auto& [reason, bytes] : out.left)
    std::printf("  %s MiB not moved: %s\n", in_mib(bytes).c_str(), remedies().at(reason).c_str());
  std::set<int> nodes;
  for (const auto* count : {&out.before, &out.after})
    for (const auto& [node, bytes] : *count) nodes.insert(node);
  std::printf("  node  before (MiB)  after (MiB)\n");
  const auto at = [](const std::map<int, std::uint64_t>& count, int node) {
    const auto entry = count.find(node);
    return in_mib(entry == count.end() ? 0 : entry->second);
  };
  for (const int node : nodes)
    std::printf("  %4d  %12s  %11s\n", node, at(out.before, node).c_str(), at(out.after, node).c_str());
}

}  // namespace

int migrate_verb(int argc, char** argv) {
  Arguments app{
      "Move the memory of a running program to other nodes, and report what could not be moved. Pages of files\n"
      "and shared libraries are not moved; new pages follow the policy of the program.\n"
      "Exit status 1: some pages were not moved.\n\n"
      "example: meshmark migrate 4711 --to 1; meshmark migrate 4711 --to 0-3 --spread",
      "meshmark migrate"};
  std::string pid_text, to, from;
  bool children = false, threads = false, as_json = false;
  MoveOptions options;
  app.add("PID", pid_text, "process to migrate").required();
  app.add("--to", to, "target nodes; several nodes receive 2 MiB each in turn").required();
  app.add("--from", from, "move only pages on these nodes [all]");
  app.flag("--children", children, "include descendants");
  app.flag("--spread", options.spread, "also move pages between the target nodes, until each has its share");
  app.flag("--with-threads", threads, "first bind its threads to the CPUs of the target nodes");
  app.flag("--shared", options.shared, "include pages shared with other processes (needs CAP_SYS_NICE)");
  app.flag("--dry-run", options.dry_run, "move nothing, and report what would be moved");
  app.flag("--json", as_json, "print one JSON object");
  if (!app.read(argc, argv, "migrate")) return 0;
  const pid_t root = read_pid(pid_text);
  const Machine machine = machine_of("host");
  options.to = nodes_of("--to", to, machine);
  if (!from.empty()) options.from = nodes_of("--from", from, machine);
  options.show_progress = ::isatty(STDERR_FILENO) == 1;

  const std::string status = read_text("/proc/" + pid_text + "/status");
  if (status.empty()) throw Failure("PID: no such process: " + pid_text);
  const std::string mems = value_of(status, "Mems_allowed_list:");
  const std::vector<int> allowed = ids_of(mems);
  for (const int node : options.to)
    if (!options.dry_run && !allowed.empty() && !std::binary_search(allowed.begin(), allowed.end(), node))
      throw UsageError("--to", "node " + std::to_string(node) + " is outside the cpuset of process " + pid_text, mems);
  std::vector<pid_t> tree{root};
  if (children)
    for (const pid_t child : descendants(root)) tree.push_back(child);
  if (threads && !options.dry_run) {
    std::set<int> cpus;
    for (const Node& node : machine.nodes)
      if (std::find(options.to.begin(), options.to.end(), node.id) != options.to.end())
        cpus.insert(node.cpus.begin(), node.cpus.end());
    if (cpus.empty()) throw UsageError("--with-threads", "nodes " + to + " have no CPUs", "nodes with CPUs");
    for (const pid_t process : tree) bind_threads(process, {cpus.begin(), cpus.end()});
  }
  bool all_moved = true;
  json all = json::array();
  for (const pid_t process : tree) {
    try {
      const ProcessMigration out = Mover(process, options).run();
      std::uint64_t left = 0;
      for (const auto& [reason, bytes] : out.left) left += reason == "gone" ? 0 : bytes;
      all_moved = all_moved && left == 0;
      if (as_json)
        all.push_back(to_json(out));
      else
        print(out, options.dry_run);
    } catch (const Failure&) {
      if (process == root || ::kill(process, 0) == 0) throw;  // a child may end meanwhile
    }
  }
  if (as_json) std::cout << to_line({{"to", options.to}, {"dry_run", options.dry_run}, {"processes", all}}) << "\n";
  return all_moved ? 0 : 1;
}

}  // namespace mm::place
