#include "ledger.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <utility>

#include "arguments.hpp"
#include "clock.hpp"
#include "command.hpp"
#include "error.hpp"
#include "json.hpp"
#include "options.hpp"
#include "output.hpp"
#include "policy.hpp"

namespace mm::place {
namespace {

constexpr std::size_t kMostBytes = 1 << 20;  // of one file: whoever writes into the folder may be anybody
constexpr std::size_t kMostText = 4096;      // of a command or a key
constexpr std::size_t kMostParts = 1 << 16;
constexpr double kMutexPatience_s = 10;
constexpr int kHighFd = 512;  // scripts redirect small descriptors, and would drop the lock with them

double now_s() { return static_cast<double>(kernel_ns(CLOCK_REALTIME)) * 1e-9; }  // since the epoch

/// A word on standard error about something that is not this command's fault.
void say(const std::string& text) { std::fprintf(stderr, "meshmark: ledger: %s\n", text.c_str()); }

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

/// Modes of what others must read are meant as they are written.
class NoUmask {
 public:
  NoUmask() : old_(umask(0)) {}
  ~NoUmask() { umask(old_); }
  NoUmask(const NoUmask&) = delete;
  NoUmask& operator=(const NoUmask&) = delete;

 private:
  mode_t old_;
};

struct Folder {
  std::string path;
  Fd fd;
  explicit operator bool() const { return static_cast<bool>(fd); }
  std::string file(const std::string& name) const { return path + "/" + name; }
};

/// None where there is no such folder and none shall be made.
Folder open_folder(const std::string& path, bool make) {
  for (;;) {
    Folder folder{path, Fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC))};
    if (folder || (errno == ENOENT && !make)) return folder;
    const NoUmask guard;
    // Everybody may add a file, and remove none but their own.
    if (errno != ENOENT || (mkdir(path.c_str(), 01777) != 0 && errno != EEXIST))
      throw Failure("ledger " + path + ": " + why() + "; MESHMARK_LEDGER names another folder");
  }
}

std::string read_bounded(int fd) {
  std::string text;
  char part[8192];
  for (ssize_t n = 0;
       text.size() <= kMostBytes && (n = pread(fd, part, sizeof part, static_cast<off_t>(text.size()))) > 0;)
    text.append(part, static_cast<std::size_t>(n));
  return text;
}

void write_claim(int fd, const std::string& text, const std::string& path) {
  if (!write_all(fd, text)) throw Failure("ledger " + path + ": cannot write: " + why());
}

std::string random_name() {
  unsigned long long bits = 0;
  if (getrandom(&bits, sizeof bits, 0) != sizeof bits) throw Failure("ledger: no random number: " + why());
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", bits);
  return text;
}

std::string boot_id() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(in, id);
  return id;
}

/// Who holds a lock on this file, by the kernel's table: "process 12 (name)", or what is known of it.
std::string holder_of(int fd) {
  struct stat status{};
  fstat(fd, &status);
  std::ifstream in("/proc/locks");
  const std::string inode = ":" + std::to_string(status.st_ino) + " ";
  for (std::string line; std::getline(in, line);) {
    if (line.find(inode) == std::string::npos || line.find("->") != std::string::npos) continue;
    int pid = 0;
    if (std::sscanf(line.c_str(), "%*s FLOCK %*s %*s %d", &pid) != 1 || pid <= 0) continue;
    std::ifstream comm("/proc/" + std::to_string(pid) + "/comm");
    std::string name;
    std::getline(comm, name);
    return "process " + std::to_string(pid) + (name.empty() ? "" : " (" + name + ")");
  }
  return "a process that is not to be seen from here";
}

/// The folder's lock, held while this object lives.
class Mutex {
 public:
  explicit Mutex(const Folder& folder) {
    const double until = wall_s() + kMutexPatience_s;
    for (useconds_t pause_us = 100;; pause_us = std::min<useconds_t>(2 * pause_us, 5000)) {
      if (!fd_) open_in(folder);
      if (flock(fd_.get(), LOCK_EX | LOCK_NB) == 0) {
        struct stat mine{}, named{};
        fstat(fd_.get(), &mine);
        if (fstatat(folder.fd.get(), "mutex", &named, AT_SYMLINK_NOFOLLOW) == 0 && named.st_ino == mine.st_ino) return;
        fd_ = Fd();  // somebody removed it: the lock on a file without a name keeps nobody out
        continue;
      }
      if (errno != EWOULDBLOCK && errno != EINTR) throw Failure("ledger " + folder.path + ": cannot lock: " + why());
      if (wall_s() > until)
        throw Failure("ledger " + folder.path + ": locked for " + std::to_string(static_cast<int>(kMutexPatience_s)) +
                      " s by " + holder_of(fd_.get()) + "; end that one, or use --no-claim");
      usleep(pause_us);
    }
  }

 private:
  // Read only: that is enough for flock(2), so nobody needs the right to write into it.
  void open_in(const Folder& folder) {
    const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    for (;;) {
      fd_ = Fd(openat(folder.fd.get(), "mutex", flags));
      if (fd_) break;
      const NoUmask guard;
      if (errno == ENOENT) fd_ = Fd(openat(folder.fd.get(), "mutex", flags | O_CREAT | O_EXCL, 0666));
      if (fd_) break;
      if (errno != EEXIST && errno != ENOENT)
        throw Failure("ledger " + folder.path + ": cannot open its mutex: " + why() + "; chmod 1777 " + folder.path +
                      ", or MESHMARK_LEDGER names another folder");
    }
    struct stat status{};
    if (fstat(fd_.get(), &status) != 0 || !S_ISREG(status.st_mode))
      throw Failure("ledger " + folder.file("mutex") + ": found no regular file; remove it");
  }
  Fd fd_;
};

/// A file that is whole and locked before it has a name, so that nobody ever meets half of one.
Fd publish(const Folder& folder, const std::string& name, const std::string& text) {
  Fd fd(openat(folder.fd.get(), ".", O_TMPFILE | O_RDWR | O_APPEND | O_CLOEXEC, 0644));
  if (!fd)
    throw Failure("ledger " + folder.path + ": cannot write: " + why() + "; " +
                  (errno == EACCES ? "chmod 1777 " + folder.path + ", --no-claim, or "
                                   : "it must be on a local file system such as tmpfs; ") +
                  "MESHMARK_LEDGER names another folder");
  fchmod(fd.get(), 0644);
  if (flock(fd.get(), LOCK_SH | LOCK_NB) != 0) throw Failure("ledger " + folder.path + ": cannot lock: " + why());
  write_claim(fd.get(), text, folder.path);
  const std::string self = "/proc/self/fd/" + std::to_string(fd.get());
  if (linkat(AT_FDCWD, self.c_str(), folder.fd.get(), name.c_str(), AT_SYMLINK_FOLLOW) != 0)
    throw Failure("ledger " + folder.path + ": cannot add " + name + ": " + why());
  return fd;
}

std::vector<std::string> names_in(const Folder& folder, const std::string& prefix) {
  std::vector<std::string> names;
  const int fd = openat(folder.fd.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const dir = fd < 0 ? nullptr : fdopendir(fd);
  if (dir == nullptr) throw Failure("ledger " + folder.path + ": cannot list: " + why());
  while (const dirent* entry = readdir(dir))
    if (std::strncmp(entry->d_name, prefix.c_str(), prefix.size()) == 0) names.emplace_back(entry->d_name);
  closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

/// Opened for reading only: who looks must not wake those who wait for a writer to close (see Watch).
struct Entry {
  Fd fd;
  struct stat status{};
};
std::optional<Entry> open_entry(const Folder& folder, const std::string& name) {
  Entry entry{Fd(openat(folder.fd.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)), {}};
  if (!entry.fd && errno == ENOENT) return std::nullopt;
  const int reason = errno;
  if (entry.fd && fstat(entry.fd.get(), &entry.status) == 0 && S_ISREG(entry.status.st_mode)) return entry;
  say("ignored " + folder.file(name) + ": " + (entry.fd ? "no regular file" : std::strerror(reason)) + "; remove it");
  return std::nullopt;
}

/// Nobody shares its lock any more. Keeps the lock, so that no second one buries it, until the entry is closed.
bool dead(const Entry& entry) { return flock(entry.fd.get(), LOCK_EX | LOCK_NB) == 0; }

// ---------------------------------------------------------------- what a claim says

std::string text_of(const json& line, const char* key) {
  const std::string text = line.value(key, "");
  if (text.size() > kMostText) throw Failure(std::string(key) + " is too long");
  return text;
}

/// A claim as it was journalled: an object with all of it, then lines with what came later. A torn line at the end was
/// never claimed. Failure says what is wrong.
Claim parse_claim(const std::string& text, std::string& boot) {
  if (text.size() > kMostBytes) throw Failure("longer than 1 MiB");
  Claim claim;
  bool first = true;
  for (const std::string& words : split(text, '\n')) {
    if (words.empty()) continue;
    const json line = parse_json(words);
    if (!line.is_object()) {
      if (first) throw Failure("no JSON object");
      continue;
    }
    try {
      if (first) {
        boot = text_of(line, "boot");
        claim.joined = 1;
        claim.pid = line.at("pid").get<int>();
        claim.since_s = line.at("since_s").get<double>();
        claim.command = text_of(line, "command");
        claim.policy = text_of(line, "policy");
        claim.job = text_of(line, "job");
        claim.exclusive = line.at("exclusive").get<bool>();
        const json& parts = line.at("parts");
        if (!parts.is_array() || parts.size() > kMostParts) throw Failure("parts is no list of at most 65536");
        for (const json& part : parts) claim.layout.parts.push_back(parse_cpu_list("parts", part.get<std::string>()));
      }
      if (line.contains("joined")) claim.joined += 1;
      if (line.contains("cgroup")) claim.cgroup = text_of(line, "cgroup");
    } catch (const UsageError& e) {
      throw Failure(e.field + " " + e.what());
    } catch (const json::exception& e) {
      throw Failure(e.what());
    }
    first = false;
  }
  if (first) throw Failure("empty");
  return claim;
}

std::string claim_line(const Claim& claim) {
  json line{{"boot", boot_id()},           {"pid", claim.pid},
            {"since_s", claim.since_s},    {"command", claim.command.substr(0, kMostText)},
            {"policy", claim.policy},      {"job", claim.job},
            {"exclusive", claim.exclusive}};
  line["parts"] = json::array();
  for (const auto& part : claim.layout.parts) line["parts"].push_back(cpu_list(part));
  return line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

/// Something that came after the first line. It starts with a line's end: what was torn before it stays alone.
void append(int fd, const json& line, const std::string& path) { write_claim(fd, "\n" + line.dump() + "\n", path); }

// ---------------------------------------------------------------- the dead

/// Removes the cgroup of a dead claim; false where processes are still in it, which have closed their descriptors but
/// hold the CPUs all the same. A claim is the word of a stranger: only an own, empty cgroup of ours can go.
bool remove_cgroup(const std::string& path, uid_t owner) {
  const std::size_t slash = path.rfind('/');
  if (path.empty() || path[0] != '/' || path.find("/../") != std::string::npos ||
      path.compare(slash + 1, 9, "meshmark-") != 0)
    return true;
  struct stat status{};
  struct statfs system{};
  if (lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != owner ||
      statfs(path.c_str(), &system) != 0 ||
      (system.f_type != CGROUP_SUPER_MAGIC && system.f_type != CGROUP2_SUPER_MAGIC))
    return true;
  return rmdir(path.c_str()) == 0 || errno != EBUSY;
}

constexpr const char* kTicket = "wait-";

/// Who was killed while waiting left a ticket, which is in nobody's way and would lie here for ever.
void bury_tickets(const Folder& folder) {
  for (const std::string& name : names_in(folder, kTicket)) {
    const auto entry = open_entry(folder, name);
    if (entry && dead(*entry)) unlinkat(folder.fd.get(), name.c_str(), 0);
  }
}

/// Living claims; the dead are removed on the way, and so are tickets of the dead. Under the folder's lock.
std::vector<Claim> scan(const Folder& folder) {
  bury_tickets(folder);
  std::vector<Claim> living;
  const std::string boot = boot_id();
  for (const std::string& name : names_in(folder, "claim-")) {
    const auto entry = open_entry(folder, name);
    if (!entry) continue;
    const bool ended = dead(*entry);
    Claim claim;
    std::string its_boot, wrong;
    try {
      claim = parse_claim(read_bounded(entry->fd.get()), its_boot);
    } catch (const Failure& e) {
      wrong = e.what();
    }
    claim.path = folder.file(name);
    claim.user = std::to_string(entry->status.st_uid);  // of the file: what the text says anybody may write
    const bool foreign = wrong.empty() && its_boot != boot;
    if (ended && (foreign || remove_cgroup(claim.cgroup, entry->status.st_uid))) {
      if (!wrong.empty()) say("removed " + claim.path + ", whose owner is gone and which cannot be read: " + wrong);
      if (foreign) say("removed " + claim.path + ", which is of another boot");
      unlinkat(folder.fd.get(), name.c_str(), 0);  // not permitted for another's: they or root remove it
      continue;
    }
    if (!wrong.empty())
      throw Failure("ledger: " + claim.path + " is held by " + holder_of(entry->fd.get()) + " and cannot be read (" +
                    wrong + "); end that process or remove the file");
    if (foreign)
      throw Failure("ledger: " + claim.path + " is of another boot, yet held: " + folder.path +
                    " is shared by several nodes; MESHMARK_LEDGER names a folder of this one");
    living.push_back(std::move(claim));
  }
  std::stable_sort(living.begin(), living.end(), [](const Claim& a, const Claim& b) { return a.since_s < b.since_s; });
  return living;
}

// ---------------------------------------------------------------- those who wait

/// Their order is that of their names. Under the folder's lock, so that who came later has the later time.
std::string ticket_name() {
  char text[64];
  timespec t{};
  clock_gettime(CLOCK_BOOTTIME, &t);
  std::snprintf(text, sizeof text, "%s%012lld.%09ld-", kTicket, static_cast<long long>(t.tv_sec), t.tv_nsec);
  return text + random_name();
}

/// Is nobody who lives before `mine` (at all, where it is empty)?
bool first_in_line(const Folder& folder, const std::string& mine) {
  for (const std::string& name : names_in(folder, kTicket)) {
    if (!mine.empty() && name >= mine) return true;
    const auto entry = open_entry(folder, name);
    if (!entry) continue;
    if (!dead(*entry)) return false;
    unlinkat(folder.fd.get(), name.c_str(), 0);
  }
  return true;
}

/// Wakes when a claim or a ticket was removed, or its last holder closed it: the kernel says so when a process dies.
class Watch {
 public:
  explicit Watch(const Folder& folder) : fd_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    if (fd_) inotify_add_watch(fd_.get(), folder.path.c_str(), IN_CLOSE_WRITE | IN_DELETE | IN_ONLYDIR);
  }
  void wait(double most_s) {
    pollfd ready{fd_.get(), POLLIN, 0};
    const double pause_s = std::min(most_s, pause_s_);
    if (poll(&ready, fd_ ? 1 : 0, static_cast<int>(std::ceil(1e3 * pause_s))) == 1) {
      char events[4096];
      while (read(fd_.get(), events, sizeof events) > 0) {}
      pause_s_ = 0.002;  // the lock itself goes a moment after the event
    } else {
      pause_s_ = std::min(2 * pause_s_, 0.2);  // and where there are no events at all
    }
  }

 private:
  Fd fd_;
  double pause_s_ = 0.002;
};

/// A ticket that goes with this object, as with the process.
struct Ticket {
  const Folder& folder;
  std::string name;
  Fd fd;
  explicit Ticket(const Folder& in) : folder(in) {}
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  ~Ticket() {
    if (!name.empty()) unlinkat(folder.fd.get(), name.c_str(), 0);
  }
  void draw(const Claim& as) {
    const std::string mine = ticket_name();
    const json line{{"pid", getpid()}, {"since_s", now_s()}, {"command", as.command.substr(0, kMostText)}};
    fd = publish(folder, mine, line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
    name = mine;
  }
};

// ---------------------------------------------------------------- holding

/// The same lock where a shell's redirections do not reach it, and through exec.
int keep(int fd) {
  int high = fcntl(fd, F_DUPFD, kHighFd);
  if (high < 0) high = fcntl(fd, F_DUPFD, 64);
  if (high < 0) throw Failure("ledger: cannot keep the claim open: " + why());
  return high;
}

/// A rank joins what an earlier one of its launch, of the same user, has claimed.
std::optional<Ledger::Held> join_in(const std::vector<Claim>& claims, const std::string& job) {
  for (const Claim& claim : claims) {
    if (job.empty() || claim.job != job || claim.user != std::to_string(geteuid())) continue;
    const Fd fd(open(claim.path.c_str(), O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC));
    if (!fd || flock(fd.get(), LOCK_SH | LOCK_NB) != 0)
      throw Failure("ledger: cannot join " + claim.path + ": " + why());
    append(fd.get(), {{"joined", getpid()}}, claim.path);
    Ledger::Held held{claim, {}, keep(fd.get())};
    held.claim.joined += 1;
    held.placement.layout = claim.layout;
    held.placement.why = "a part of what the first rank of its launch has claimed";
    return held;
  }
  return std::nullopt;
}

/// What others took. A command within a placed one lives in its claim, so that one is not in its way.
std::vector<Claim> of_others(const std::vector<Claim>& claims) {
  const char* const own = std::getenv("MESHMARK_CLAIM");
  std::vector<Claim> others;
  for (const Claim& claim : claims)
    if (own == nullptr || claim.path != own) others.push_back(claim);
  return others;
}

}  // namespace

std::string ledger_folder() {
  if (const char* named = std::getenv("MESHMARK_LEDGER"); named != nullptr && *named != '\0') return named;
  constexpr const char* kFolders[] = {"/run/lock/meshmark", "/dev/shm/meshmark-claims"};
  // The one that is there, whoever made it: root may write where others may not, and all must meet in one place.
  for (const char* folder : kFolders)
    if (access(folder, F_OK) == 0) return folder;
  return access("/run/lock", W_OK) == 0 ? kFolders[0] : kFolders[1];
}

Ledger::Ledger(std::string folder) : folder_(std::move(folder)) {}

std::vector<Claim> Ledger::claims() {
  const Folder folder = open_folder(folder_, false);
  if (!folder) return {};
  const Mutex mutex(folder);
  return scan(folder);
}

Occupancy Ledger::occupancy(const std::vector<Claim>& claims) {
  Occupancy taken;
  for (const Claim& claim : claims) occupy(taken, Placement{claim.layout, {}, false, {}, {}, false}, claim.exclusive);
  return taken;
}

Ledger::Held Ledger::claim(const Claim& as, const std::function<Placement(const Occupancy&)>& decide, double wait_s) {
  const Folder folder = open_folder(folder_, true);
  const double until = wall_s() + wait_s;
  std::optional<Watch> watch;
  if (wait_s > 0) watch.emplace(folder);
  Ticket ticket(folder);
  for (std::string busy = "others wait for CPUs";;) {
    // Ranks of a launch take their part as soon as the first of them has it, whatever their place in the line.
    if (ticket.name.empty() || !as.job.empty() || first_in_line(folder, ticket.name)) {
      const Mutex mutex(folder);
      const std::vector<Claim> all = scan(folder);
      if (auto held = join_in(all, as.job)) return *std::move(held);
      if (wait_s <= 0 || first_in_line(folder, ticket.name)) try {
          Held held{as, decide(occupancy(of_others(all))), -1};
          const std::string name = "claim-" + random_name();
          held.claim.path = folder.file(name);
          held.claim.pid = getpid();
          held.claim.user = std::to_string(geteuid());
          held.claim.since_s = now_s();
          held.claim.layout = held.placement.layout;
          held.claim.joined = 1;
          const Fd fd = publish(folder, name, claim_line(held.claim));
          held.lock_fd = keep(fd.get());
          return held;
        } catch (const Busy& e) {
          if (wait_s <= 0) throw;
          busy = e.what();
        }
      if (ticket.name.empty()) ticket.draw(as);
    }
    const double left_s = until - wall_s();
    if (left_s <= 0) throw Busy(busy + ", and did so all the time that --wait gave");
    if (watch) watch->wait(left_s);
  }
}

std::optional<Ledger::Held> Ledger::join(const std::string& job) {
  const Folder folder = open_folder(folder_, false);
  if (!folder) return std::nullopt;
  const Mutex mutex(folder);
  return join_in(scan(folder), job);
}

void Ledger::set_cgroup(Held& held, const std::string& folder) {
  if (held.claim.cgroup == folder) return;
  append(held.lock_fd, {{"cgroup", folder}}, held.claim.path);
  held.claim.cgroup = folder;
}

void Ledger::release(Held& held) {
  const Folder folder = open_folder(folder_, false);
  if (folder) {
    const Mutex mutex(folder);
    close(std::exchange(held.lock_fd, -1));
    scan(folder);  // removes it, unless somebody shares it
  }
}

// ---------------------------------------------------------------- meshmark slots

namespace {

std::string user_name(const std::string& uid) {
  const passwd* const entry = getpwuid(static_cast<uid_t>(std::stoul(uid)));
  return entry != nullptr ? entry->pw_name : uid;
}

/// Of a stranger's text only what a terminal shows, and not more than a line has room for.
std::string plain(const std::string& text, std::size_t most) {
  std::string shown;
  for (const char c : text.substr(0, most)) shown += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return shown;
}

std::string age(double since_s) {
  const double s = std::max(0.0, now_s() - since_s);
  char text[32];
  if (s < 120)
    std::snprintf(text, sizeof text, "%.0f s", s);
  else if (s < 7200)
    std::snprintf(text, sizeof text, "%.0f min", s / 60);
  else
    std::snprintf(text, sizeof text, "%.1f h", std::min(s / 3600, 1e6));
  return text;
}

json waiting_in(const Folder& folder) {
  json all = json::array();
  if (!folder) return all;
  for (const std::string& name : names_in(folder, kTicket)) {
    const auto entry = open_entry(folder, name);
    if (!entry || dead(*entry)) continue;
    const json line = parse_json(read_bounded(entry->fd.get()));
    if (!line.is_object()) continue;
    try {
      all.push_back({{"pid", line.at("pid").get<int>()},
                     {"user", user_name(std::to_string(entry->status.st_uid))},
                     {"since_s", line.at("since_s").get<double>()},
                     {"command", text_of(line, "command")}});
    } catch (const std::exception&) {
      say("ignored " + folder.file(name) + ": not a ticket");
    }
  }
  return all;
}

}  // namespace

int slots_verb(int argc, char** argv) {
  Arguments app{"Who holds which CPUs of this node, and who waits.\n\nexample: meshmark slots --json",
                "meshmark slots"};
  std::string where = ledger_folder();
  bool as_json = false;
  app.add("--ledger", where, "folder of the claims").show_default();
  app.flag("--json", as_json, "one object");
  if (!app.read(argc, argv, "slots")) return 0;
  const std::vector<Claim> claims = Ledger(where).claims();
  const json waiting = waiting_in(open_folder(where, false));
  const Machine machine = machine_of("host");
  const Occupancy taken = Ledger::occupancy(claims);
  std::vector<int> free;
  for (const int cpu : machine.allowed)
    if (!taken.jobs.contains(cpu)) free.push_back(cpu);

  if (as_json) {
    json all{{"ledger", where}, {"claims", json::array()}, {"free", free}, {"waiting", waiting}};
    for (const Claim& c : claims)
      all["claims"].push_back({{"cpus", c.layout.cpus()},
                               {"parts", c.layout.parts},
                               {"user", user_name(c.user)},
                               {"pid", c.pid},
                               {"since_s", c.since_s},
                               {"command", c.command},
                               {"policy", c.policy},
                               {"job", c.job},
                               {"exclusive", c.exclusive},
                               {"joined", c.joined},
                               {"cgroup", c.cgroup.empty() ? json(nullptr) : json(c.cgroup)},
                               {"path", c.path}});
    std::cout << all.dump(-1, ' ', false, json::error_handler_t::replace) << "\n";
    return 0;
  }
  if (!claims.empty())
    std::printf("%-16s %-10s %-10s %8s %8s  %s\n", "CPUs", "policy", "user", "pid", "since", "command");
  for (const Claim& c : claims)
    std::printf("%-16s %-10s %-10s %8d %8s  %s\n", cpu_list(c.layout.cpus()).c_str(),
                plain(c.policy + (c.exclusive ? "!" : ""), 10).c_str(), plain(user_name(c.user), 10).c_str(), c.pid,
                age(c.since_s).c_str(), plain(c.command, 60).c_str());
  for (const json& w : waiting)
    std::printf("%-16s %-10s %-10s %8d %8s  %s\n", "waits", "", plain(w["user"], 10).c_str(), w["pid"].get<int>(),
                age(w["since_s"]).c_str(), plain(w["command"], 60).c_str());
  std::printf("free: %s\n", free.empty() ? "none" : cpu_list(free).c_str());
  return 0;
}

}  // namespace mm::place
