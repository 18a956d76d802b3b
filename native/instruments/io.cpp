/// io: raw and file reads and writes through fio.
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdlib>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/clock.hpp"
#include "base/instrument.hpp"
#include "base/options.hpp"

namespace {

using mm::json;
namespace fs = std::filesystem;

const mm::Description kIo{
    .name = "io",
    .summary = "raw and file reads and writes through fio, over queue depth and number of jobs",
    .detail =
        "Every sample is one short run of fio (--runtime) with direct input and output, past the page cache. A file is "
        "laid "
        "out before the clock starts and removed afterwards. A block device is read and never written.\n"
        "example: meshmark-probe io --target . --direction read,write --depth 1,16 --jobs 1",
    .source = "fio (Axboe); GS1280 study (2003), I/O scaling; Opteron e325 and XEON 5500 studies",
    .spoils = {"a cache in the storage or in the hypervisor: size the file beyond it", "other users of the device",
               "a file system that refuses direct input and output (see direct)"},
    .needs = {"fio"},
    .parameters = {{"target", "a folder (a file is made in it), a file, or a block device (read only)", "",
                    mm::Kind::text, "."},
                   {"direction",
                    "what is done",
                    "",
                    mm::Kind::choices,
                    "read",
                    {},
                    {},
                    {"read", "write", "randread", "randwrite"}},
                   {"block_bytes", "of one request", "B", mm::Kind::sizes, "128KiB", 512, 1 << 30},
                   {"queue_depth",
                    "requests on their way at once, a list",
                    "",
                    mm::Kind::integers,
                    "1,16",
                    1,
                    4096,
                    {},
                    "--depth"},
                   {"jobs", "processes at once, a list", "", mm::Kind::integers, "1", 1, 1024},
                   {"size_bytes", "of the file", "B", mm::Kind::size, "256MiB", 4096, {}},
                   {"runtime_s", "of one sample", "s", mm::Kind::time, "300ms", 0.1, 600},
                   {"engine", "fio's engine; auto: libaio, else io_uring, else psync", "", mm::Kind::text, "auto"}},
    .metrics = {{"bandwidth_net", "bytes moved over time", "B/s", mm::Better::higher},
                {"operation_latency", "mean time from submission to completion", "s", mm::Better::lower}},
    .identity = {"target", "direction", "block_bytes", "queue_depth", "jobs", "size_bytes"},
    .bytes_per_iteration = 131072,
};

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  for (const std::string& dir : mm::split(path != nullptr ? path : "/usr/bin:/bin", ':'))
    if (!dir.empty() && access((dir + "/" + name).c_str(), X_OK) == 0) return dir + "/" + name;
  return {};
}

struct Output {
  int status;
  std::string out, err;
};

/// Runs a program without a shell; it dies with us and after `limit_s`.
Output run_program(const std::vector<std::string>& words, double limit_s) {
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
    throw mm::Failure("no pipe: " + std::string(std::strerror(errno)));
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    setpgid(0, 0);
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    std::vector<char*> argv;
    for (const std::string& w : words) argv.push_back(const_cast<char*>(w.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  if (child < 0) throw mm::Failure("cannot start " + words[0] + ": " + std::strerror(errno));
  Output result{};
  const double end = mm::wall_s() + limit_s;
  bool open_out = true, open_err = true, late = false;
  while (open_out || open_err) {
    pollfd fds[2] = {{open_out ? out[0] : -1, POLLIN, 0}, {open_err ? err[0] : -1, POLLIN, 0}};
    if (poll(fds, 2, 200) < 0 && errno != EINTR) break;
    char buffer[65536];
    for (int i = 0; i < 2; ++i) {
      if ((fds[i].revents & (POLLIN | POLLHUP)) == 0) continue;
      const ssize_t n = read(fds[i].fd, buffer, sizeof buffer);
      if (n > 0)
        (i == 0 ? result.out : result.err).append(buffer, static_cast<std::size_t>(n));
      else
        (i == 0 ? open_out : open_err) = false;
    }
    if (!late && mm::wall_s() > end) {
      late = true;
      kill(-child, SIGKILL);
    }
  }
  close(out[0]);
  close(err[0]);
  waitpid(child, &result.status, 0);
  if (late) throw mm::Failure(fs::path(words[0]).filename().string() + " did not end in time and was killed");
  return result;
}

/// First line of a message of fio's, without its prefix.
std::string first_line(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  return line.empty() ? "it said nothing" : line.substr(0, 200);
}

/// A file without a name: it goes with the last process that holds it, however that one ends.
class NamelessFile {
 public:
  explicit NamelessFile(const std::string& folder) {
    fd_ = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd_ >= 0) return;
    // Not every file system has files without names; a kill between these two calls leaves one.
    const std::string name = (fs::path(folder) / (".meshmark-io-" + std::to_string(getpid()))).string();
    fd_ = open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (fd_ < 0)
      throw mm::Absent("cannot write in " + mm::quote(folder) + ": " + std::strerror(errno), "another --target");
    unlink(name.c_str());
  }
  ~NamelessFile() { close(fd_); }
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;
  int fd() const { return fd_; }
  /// By which other processes of this user find it.
  std::string path() const { return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

std::string pick_engine(const std::string& fio, const std::string& asked) {
  if (asked != "auto") return asked;
  const Output known = run_program({fio, "--enghelp"}, 10);
  for (const char* engine : {"libaio", "io_uring"})
    if (known.out.find(engine) != std::string::npos) return engine;
  return "psync";
}

void measure(mm::Run& run) {
  const std::string target = run.text("target");
  const auto directions = run.choices("direction");
  const bool writes =
      std::any_of(directions.begin(), directions.end(), [](auto& d) { return d.find("write") != std::string::npos; });
  struct stat info{};
  if (stat(target.c_str(), &info) != 0)
    run.refuse("target", "found " + mm::quote(target) + ": " + std::strerror(errno),
               "a folder, a file or a block device that is there");
  const bool device = S_ISBLK(info.st_mode), folder = S_ISDIR(info.st_mode);
  if (device && writes)
    run.refuse("target", "found the block device " + mm::quote(target) + " and direction write",
               "read, randread: a device is never written");
  if (!device && !folder && writes)
    run.refuse("target", "found the file " + mm::quote(target) + " and direction write",
               "a folder: files of yours are never written");
  if (!device && !folder && !S_ISREG(info.st_mode))
    run.refuse("target", "found " + mm::quote(target), "a folder, a file or a block device");
  const auto blocks = run.sizes("block_bytes");
  const auto depths = run.integers("queue_depth", 0), jobs = run.integers("jobs", 0);
  const std::size_t size = folder ? run.bytes("size_bytes") : 0;
  const double runtime = run.time_s("runtime_s");
  if (folder && size < blocks.back())
    run.refuse("size_bytes", "found " + std::to_string(size), "at least one block, " + std::to_string(blocks.back()));
  const std::string fio = find_program("fio");
  if (fio.empty())
    throw mm::Absent("fio is not installed",
                     "apt-get install fio (Debian, Ubuntu); dnf install fio (Fedora); spack install fio");
  const std::string engine = pick_engine(fio, run.text("engine"));

  std::string file = target;
  std::shared_ptr<NamelessFile> temporary;
  bool direct = true;
  if (folder) {
    const auto space = fs::space(target);
    if (space.available < size + size / 10)
      throw mm::Absent("the disk has no room for " + std::to_string(size >> 20) + " MiB in " + mm::quote(target),
                       "a smaller --size, or another --target");
    temporary = std::make_shared<NamelessFile>(target);
    file = temporary->path();
    const int fd = temporary->fd();
    // Real blocks with changing content: a hole reads faster than any disk, and zeros may be stored as nothing.
    std::vector<std::uint64_t> chunk(1 << 17);
    std::uint64_t x = run.seed() * 2 + 1;
    for (std::size_t at = 0; at < size; at += chunk.size() * 8) {
      for (auto& w : chunk) w = x = x * 6364136223846793005u + 1442695040888963407u;
      const std::size_t n = std::min(chunk.size() * 8, size - at);
      if (write(fd, chunk.data(), n) != static_cast<ssize_t>(n))
        throw mm::Failure("cannot lay out the file in " + mm::quote(target) + ": " + std::strerror(errno));
      run.beat("laying out the file");
    }
    fsync(fd);
    const int probe = open(file.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
    direct = probe >= 0;
    if (probe >= 0) close(probe);
  }

  std::vector<mm::Point> points;
  for (const std::string& direction : directions)
    for (std::size_t block : blocks)
      for (int depth : depths)
        for (int job : jobs) {
          if (engine == "psync" && depth > 1) {
            run.absent("bandwidth_net", {{"queue_depth", depth}}, "fio has no asynchronous engine here",
                       "a fio with libaio or io_uring");
            continue;
          }
          mm::Point p;
          p.conditions = {{"target", target},
                          {"direction", direction},
                          {"block_bytes", block},
                          {"queue_depth", depth},
                          {"jobs", job},
                          {"size_bytes", size},
                          {"engine", engine},
                          {"direct", direct},
                          {"target_kind", device   ? "device"
                                          : folder ? "folder"
                                                   : "file"}};
          p.metrics = {"bandwidth_net", "operation_latency"};
          p.shield = false;  // it starts processes and waits for a device
          p.timed_inside = false;
          p.burst = [=] {
            std::vector<std::string> words{fio,
                                           "--name=meshmark",
                                           "--filename=" + file,
                                           "--rw=" + direction,
                                           "--bs=" + std::to_string(block),
                                           "--iodepth=" + std::to_string(depth),
                                           "--numjobs=" + std::to_string(job),
                                           "--ioengine=" + engine,
                                           std::string("--direct=") + (direct ? "1" : "0"),
                                           "--time_based=1",
                                           "--runtime=" + std::to_string(static_cast<int>(runtime * 1000)) + "ms",
                                           "--group_reporting=1",
                                           "--output-format=json",
                                           "--thread=1",
                                           "--allow_mounted_write=0"};
            if (folder)
              words.push_back("--size=" + std::to_string(size / block * block)),
                  words.push_back("--allow_file_create=0");
            if (!writes) words.push_back("--readonly");
            const Output got = run_program(words, runtime + 30);
            if (!WIFEXITED(got.status) || WEXITSTATUS(got.status) != 0)
              throw mm::Failure("fio: " + first_line(got.err.empty() ? got.out : got.err));
            const json j = mm::parse_json(got.out.substr(std::min(got.out.find('{'), got.out.size())));
            const char* side = direction.find("write") != std::string::npos ? "write" : "read";
            if (!j.is_object() || !j.contains("jobs") || j["jobs"].empty() || !j["jobs"][0].contains(side))
              throw mm::Failure("fio's output is not what it is known for");
            const json& r = j["jobs"][0][side];
            const double bytes = r.value("io_bytes", 0.0), ms = r.value("runtime", 0.0);
            const double latency = r.contains("lat_ns") ? r["lat_ns"].value("mean", 0.0) * 1e-9 : 0;
            if (bytes <= 0 || ms <= 0 || latency <= 0) throw mm::Failure("fio moved nothing in its time");
            return mm::Values{bytes / (ms * 1e-3), latency};
          };
          points.push_back(std::move(p));
        }
  run.measure(std::move(points));
}

const mm::Instrument io{kIo, measure};

}  // namespace
