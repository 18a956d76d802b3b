/// io: reads and writes of devices and files by fio.
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <csignal>
#include <cstdlib>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/clock.hpp"
#include "base/harness/instrument.hpp"
#include "base/options/options.hpp"
#include "base/resources/child.hpp"

namespace {

using mm::json;
namespace fs = std::filesystem;

const mm::Description kIo{
    .name = "io",
    .summary = "reads and writes of devices and files by fio, over queue depth and number of jobs",
    .detail =
        "Every sample is a short run of fio (--runtime) with direct I/O, bypassing the page cache. A file is written "
        "before the clock starts and removed afterwards. A block device is only read.\n"
        "example: meshmark-probe io --target . --direction read,write --depth 1,16 --jobs 1",
    .source = "fio (Axboe); GS1280 study (2003), I/O scaling; Opteron e325 and XEON 5500 studies",
    .spoils = {"a cache in the storage or in the hypervisor: use a larger file", "other users of the device",
               "a file system without direct I/O (see direct)"},
    .needs = {"fio"},
    .parameters =
        {{"target", "a folder (for a temporary file), a file, or a block device (read only)", "", mm::Kind::text, "."},
         mm::choices("direction", "access patterns", "read", {"read", "write", "randread", "randwrite"}),
         {"block_bytes", "size of a request", "B", mm::Kind::sizes, "128KiB", 512, 1 << 30},
         {"queue_depth", "outstanding requests, a list", "", mm::Kind::integers, "1,16", 1, 4096, {}, "--depth"},
         {"jobs", "concurrent processes, a list", "", mm::Kind::integers, "1", 1, 1024},
         {"size_bytes", "size of the file", "B", mm::Kind::size, "256MiB", 4096, {}},
         {"runtime_s", "duration of a sample", "s", mm::Kind::time, "300ms", 0.1, 600},
         {"engine", "fio's engine; auto: libaio, io_uring or psync, whichever is available first", "", mm::Kind::text,
          "auto"}},
    .metrics = {{"bandwidth_net", "bytes transferred over time", "B/s", mm::Better::higher},
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

struct ProgramOutput {
  int status;
  std::string out, err;
};

/// Runs a program without a shell. The program is killed when this process ends, and after `limit_s`.
ProgramOutput run_program(const std::vector<std::string>& command, double limit_s) {
  mm::Pipe out, err;
  const pid_t child = mm::start_child(SIGTERM);
  if (child == 0) {
    setpgid(0, 0);
    dup2(out.writer.get(), STDOUT_FILENO);
    dup2(err.writer.get(), STDERR_FILENO);
    const std::vector<char*> argv = mm::argument_vector(command);
    execv(argv[0], argv.data());
    _exit(127);
  }
  out.writer.close();
  err.writer.close();
  ProgramOutput result{};
  const double end = mm::wall_s() + limit_s;
  bool open_out = true, open_err = true, late = false;
  while (open_out || open_err) {
    pollfd fds[2] = {{open_out ? out.reader.get() : -1, POLLIN, 0}, {open_err ? err.reader.get() : -1, POLLIN, 0}};
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
  out.reader.close();
  err.reader.close();
  result.status = mm::wait_for_child(child);
  if (late) throw mm::Failure(fs::path(command[0]).filename().string() + " timed out and was killed");
  return result;
}

/// Returns the first line of fio's message, at most 200 characters.
std::string first_line(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  return line.empty() ? "no output" : line.substr(0, 200);
}

/// A file without a name. The operating system removes it as soon as no process has it open, however the processes end.
class NamelessFile {
 public:
  explicit NamelessFile(const std::string& folder) {
    fd_ = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd_ >= 0) return;
    // Not every file system supports O_TMPFILE; a kill between open and unlink leaves the file behind.
    const std::string name = (fs::path(folder) / (".meshmark-io-" + std::to_string(getpid()))).string();
    fd_ = open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (fd_ < 0)
      throw mm::Absent("cannot create a file in " + mm::quote(folder) + ": " + std::strerror(errno),
                       "another --target");
    unlink(name.c_str());
  }
  ~NamelessFile() { close(fd_); }
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;
  int fd() const { return fd_; }
  /// Returns a path by which other processes of this user can open the file.
  std::string path() const { return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

std::string pick_engine(const std::string& fio, const std::string& requested) {
  if (requested != "auto") return requested;
  const ProgramOutput engines = run_program({fio, "--enghelp"}, 10);
  for (const char* engine : {"libaio", "io_uring"})
    if (engines.out.find(engine) != std::string::npos) return engine;
  return "psync";
}

struct Target {
  std::string name;
  bool device, folder;
  const char* kind() const { return device ? "device" : folder ? "folder" : "file"; }
};

/// Returns the target. Refuses a target that does not exist or must not be written.
Target target_of(mm::Run& run, bool writes) {
  const std::string name = run.text("target");
  struct stat info{};
  if (stat(name.c_str(), &info) != 0)
    run.refuse("target", "found " + mm::quote(name) + ": " + std::strerror(errno),
               "an existing folder, file or block device");
  const Target target{name, S_ISBLK(info.st_mode), S_ISDIR(info.st_mode)};
  if (target.device && writes)
    run.refuse("target", "found the block device " + mm::quote(name) + " and direction write",
               "read, randread: devices are never written");
  if (!target.device && !target.folder && writes)
    run.refuse("target", "found the file " + mm::quote(name) + " and direction write",
               "a folder: existing files are never written");
  if (!target.device && !target.folder && !S_ISREG(info.st_mode))
    run.refuse("target", "found " + mm::quote(name), "a folder, a file or a block device");
  return target;
}

/// Creates a file of `size` bytes in a folder. Its data are random, because storage may read holes faster than data and
/// may not store zeros.
std::unique_ptr<NamelessFile> lay_out(mm::Run& run, const std::string& folder, std::size_t size) {
  if (fs::space(folder).available < size + size / 10)
    throw mm::Absent("less than " + std::to_string(size >> 20) + " MiB plus 10 % are free in " + mm::quote(folder),
                     "a smaller --size, or another --target");
  auto file = std::make_unique<NamelessFile>(folder);
  std::vector<std::uint64_t> chunk(1 << 17);
  std::uint64_t x = run.seed() * 2 + 1;
  for (std::size_t offset = 0; offset < size; offset += chunk.size() * 8) {
    for (auto& w : chunk) w = x = x * 6364136223846793005u + 1442695040888963407u;
    const std::size_t n = std::min(chunk.size() * 8, size - offset);
    if (write(file->fd(), chunk.data(), n) != static_cast<ssize_t>(n))
      throw mm::Failure("cannot write the file in " + mm::quote(folder) + ": " + std::strerror(errno));
    run.beat("writing the file");
  }
  fsync(file->fd());
  return file;
}

bool opens_directly(const std::string& file) {
  const int fd = open(file.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

/// One run of fio.
struct FioRun {
  std::string fio, engine, file, direction;
  std::size_t block = 0, size = 0;  ///< size of a temporary file; 0: the size of the target
  int depth = 1, processes = 1;
  double runtime_s = 0;
  bool direct = true, read_only = true;
};

std::vector<std::string> argv_of(const FioRun& job) {
  std::vector<std::string> argv{job.fio,
                                "--name=meshmark",
                                "--filename=" + job.file,
                                "--rw=" + job.direction,
                                "--bs=" + std::to_string(job.block),
                                "--iodepth=" + std::to_string(job.depth),
                                "--numjobs=" + std::to_string(job.processes),
                                "--ioengine=" + job.engine,
                                std::string("--direct=") + (job.direct ? "1" : "0"),
                                "--time_based=1",
                                "--runtime=" + std::to_string(static_cast<int>(job.runtime_s * 1000)) + "ms",
                                "--group_reporting=1",
                                "--output-format=json",
                                "--thread=1",
                                "--allow_mounted_write=0"};
  if (job.size > 0) {
    argv.push_back("--size=" + std::to_string(job.size / job.block * job.block));
    argv.push_back("--allow_file_create=0");
  }
  if (job.read_only) argv.push_back("--readonly");
  return argv;
}

/// Returns the bandwidth in B/s and the mean latency in s. Throws Failure if fio fails or reports nothing.
mm::Values run_fio(const FioRun& job) {
  const ProgramOutput output = run_program(argv_of(job), job.runtime_s + 30);
  if (!WIFEXITED(output.status) || WEXITSTATUS(output.status) != 0)
    throw mm::Failure("fio: " + first_line(output.err.empty() ? output.out : output.err));
  const json j = mm::parse_json(output.out.substr(std::min(output.out.find('{'), output.out.size())));
  const char* side = job.direction.find("write") != std::string::npos ? "write" : "read";
  if (!j.is_object() || !j.contains("jobs") || j["jobs"].empty() || !j["jobs"][0].contains(side))
    throw mm::Failure("fio's output has an unknown format");
  const json& r = j["jobs"][0][side];
  const double bytes = r.value("io_bytes", 0.0), ms = r.value("runtime", 0.0);
  const double latency = r.contains("lat_ns") ? r["lat_ns"].value("mean", 0.0) * 1e-9 : 0;
  if (bytes <= 0 || ms <= 0 || latency <= 0) throw mm::Failure("fio reports no transfer");
  return {bytes / (ms * 1e-3), latency};
}

mm::Point point_of(const Target& target, const FioRun& job) {
  mm::Point p;
  p.conditions = {{"target", target.name},    {"direction", job.direction}, {"block_bytes", job.block},
                  {"queue_depth", job.depth}, {"jobs", job.processes},      {"size_bytes", job.size},
                  {"engine", job.engine},     {"direct", job.direct},       {"target_kind", target.kind()}};
  p.metrics = {"bandwidth_net", "operation_latency"};
  p.shield = false;  // the burst starts processes and waits for a device
  p.timed_inside = false;
  p.burst = [job] { return run_fio(job); };
  return p;
}

void measure(mm::Run& run) {
  const auto directions = run.choices("direction");
  const auto blocks = run.sizes("block_bytes");
  FioRun job;
  job.read_only =
      std::none_of(directions.begin(), directions.end(), [](auto& d) { return d.find("write") != std::string::npos; });
  const Target target = target_of(run, !job.read_only);
  const auto depths = run.integers("queue_depth", 0), jobs = run.integers("jobs", 0);
  if (target.folder) job.size = run.bytes("size_bytes");
  job.runtime_s = run.time_s("runtime_s");
  if (target.folder && job.size < blocks.back())
    run.refuse("size_bytes", "found " + std::to_string(job.size),
               "at least one block, " + std::to_string(blocks.back()));
  job.fio = find_program("fio");
  if (job.fio.empty())
    throw mm::Absent("fio is not installed",
                     "apt-get install fio (Debian, Ubuntu); dnf install fio (Fedora); spack install fio");
  job.engine = pick_engine(job.fio, run.text("engine"));
  job.file = target.name;
  std::unique_ptr<NamelessFile> temporary;
  if (target.folder) {
    temporary = lay_out(run, target.name, job.size);
    job.file = temporary->path();
    job.direct = opens_directly(job.file);
  }

  std::vector<mm::Point> points;
  for (const std::string& direction : directions)
    for (const std::size_t block : blocks)
      for (const int depth : depths)
        for (const int processes : jobs) {
          if (job.engine == "psync" && depth > 1) {
            run.absent("bandwidth_net", {{"queue_depth", depth}}, "fio has no asynchronous engine here",
                       "a fio with libaio or io_uring");
            continue;
          }
          job.direction = direction;
          job.block = block;
          job.depth = depth;
          job.processes = processes;
          points.push_back(point_of(target, job));
        }
  run.measure(std::move(points));
}

const mm::Instrument io{kIo, measure};

}  // namespace
