#include "mpi/harness/world.hpp"

#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/error.hpp"
#include "base/harness/output.hpp"
#include "base/options/options.hpp"
#include "base/resources/host.hpp"
#include "base/resources/memory.hpp"
#include "base/resources/team.hpp"
#include "base/topology/topology.hpp"
#include "program/entry.hpp"
#include "sys/files.hpp"

namespace mm::mpi {
namespace {

constexpr int kOffsetRounds = 64;
constexpr unsigned kEnd_s = 5;
constexpr double kRead_s = 1.0;
constexpr double kMinLead_s = 20e-6, kMaxLead_s = 10e-3;
constexpr std::size_t kProbe_bytes = 4 << 20;  // exceeds the other network traffic of a host in the same time
constexpr int kProbe_rounds = 3;

/// Ends all ranks once the launcher has read what this rank wrote. Otherwise MPICH's launcher may drop the rest.
void abort_read(int status) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(kRead_s);
  std::fflush(nullptr);
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat info{};
    int unread = 0;
    if (::fstat(stream, &info) != 0 || !S_ISFIFO(info.st_mode)) continue;
    while (::ioctl(stream, FIONREAD, &unread) == 0 && unread > 0 && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  MPI_Abort(MPI_COMM_WORLD, status);
}

/// Returns an identifier of the running Linux kernel. Containers and namespaces on the same kernel have the same
/// identifier.
std::string boot_id() {
  const std::string id = first_line("/proc/sys/kernel/random/boot_id");
  return id.empty() ? host_name() : id;
}

/// Returns the bytes sent so far by each network interface and fabric port. Members of a bridge or bond are counted as
/// part of it.
std::map<std::string, double> sent_bytes() {
  namespace fs = std::filesystem;
  std::map<std::string, double> bytes_by_port;
  std::ifstream dev("/proc/net/dev");
  for (std::string line; std::getline(dev, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::istringstream fields(line.substr(colon + 1));
    double value = 0;
    for (int i = 0; i < 9 && fields >> value;) ++i;
    const std::size_t start = line.find_first_not_of(' ');
    const std::string name = line.substr(start, colon - start);
    if (!fs::exists("/sys/class/net/" + name + "/master")) bytes_by_port[name] = value;
  }
  std::error_code error;
  for (const auto& device : fs::directory_iterator("/sys/class/infiniband", error))
    for (const auto& port : fs::directory_iterator(device.path() / "ports", error)) {
      std::ifstream in(port.path() / "counters/port_xmit_data");
      double words = 0;
      if (in >> words)
        bytes_by_port[device.path().filename().string() + "/" + port.path().filename().string()] = 4 * words;
    }
  return bytes_by_port;
}

/// Returns the number of tasks of srun that no process manager has connected: each of them would be a job of one rank.
/// Returns 0 if a manager connects them, or if srun did not start this process.
int unconnected_srun_tasks() {
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  if (tasks == nullptr || std::getenv("SLURM_PROCID") == nullptr) return 0;
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_FD", "PMI_PORT", "HYDI_CONTROL_FD"})
    if (std::getenv(variable) != nullptr) return 0;
  return std::atoi(tasks);
}

[[noreturn]] void refuse_unconnected(int tasks) {
  throw UsageError("ranks", "found " + std::to_string(tasks) + " tasks of srun that are not connected to one another",
                   "srun --mpi=pmix (Open MPI), srun --mpi=pmi2 (MPICH), or mpirun inside the allocation");
}

int status_at_end = 0;
int launcher_socket = -1;  // of PMI, through which MPICH's launcher started this rank

/// Reports that this rank ends as intended, as MPI_Finalize does as its last act. Otherwise MPICH's launcher kills the
/// other ranks as soon as the first one exits, and a rank that ends a moment later ends with SIGKILL instead of its
/// status. Signal handlers may call this function, too. Source: PMI 1, the simple wire protocol.
void leave_launcher() {
  constexpr std::string_view kFinalize = "cmd=finalize\n";
  char answer[64];
  if (launcher_socket < 0 || write(launcher_socket, kFinalize.data(), kFinalize.size()) < 0) return;
  [[maybe_unused]] const ssize_t answer_bytes = read(launcher_socket, answer, sizeof answer);
}

}  // namespace

std::pair<std::string, std::string> library_of() {  // "Open MPI v4.1.4, package: …" or "MPICH Version:\t4.0.2\n…"
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  check(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
  std::string whole(text, static_cast<std::size_t>(length));
  std::string kind = "mpi";
  for (const auto& [pattern, name] :
       {std::pair{"Open MPI", "openmpi"}, std::pair{"Intel", "intelmpi"}, std::pair{"MVAPICH", "mvapich"},
        std::pair{"CRAY", "craympich"}, std::pair{"MPICH", "mpich"}})
    if (whole.find(pattern) != std::string::npos) {
      kind = name;
      break;
    }
  std::string first = whole.substr(0, whole.find_first_of(",\n"));
  std::string tidy;
  std::istringstream words(first);
  for (std::string word; words >> word;) {
    if (word == "Version:" || word == "Version") continue;
    if (word.size() > 1 && word[0] == 'v' && std::isdigit(static_cast<unsigned char>(word[1]))) word.erase(0, 1);
    tidy += (tidy.empty() ? "" : " ") + word;
  }
  return {kind, tidy};
}

void check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw Failure(std::string(call) + ": " + std::string(text, static_cast<std::size_t>(length)));
}

World& World::get() {
  static World world;
  return world;
}

void World::start(bool threaded) {
  if (started_) return;
  keep_output();
  const int tasks = unconnected_srun_tasks();
  // Without this check, Open MPI would end the process in MPI_Init.
  if (tasks > 1 && std::getenv("PMIX_RANK") == nullptr) refuse_unconnected(tasks);
  // Above MPI_THREAD_SINGLE, Open MPI 4.1 takes locks that cost a third of a short message's time.
  int provided = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(nullptr, nullptr, threaded ? MPI_THREAD_FUNNELED : MPI_THREAD_SINGLE, &provided),
        "MPI_Init_thread");
  started_ = true;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  if (tasks > 1 && size_ == 1) refuse_unconnected(tasks);  // the manager belongs to another library
  mute(rank_ != 0);
  std::tie(kind_, library_) = library_of();

  MPI_Comm memory_group = MPI_COMM_NULL;
  check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &memory_group),
        "MPI_Comm_split_type");
  int first = rank_;
  check(MPI_Bcast(&first, 1, MPI_INT, 0, memory_group), "MPI_Bcast");
  MPI_Comm_free(&memory_group);
  const auto descriptions = gather({{"host", host_name()},
                                    {"boot_id", boot_id()},
                                    {"pid", getpid()},
                                    {"cpu", sched_getcpu()},
                                    {"first", first},
                                    {"allowed", allowed_cpus()}});
  std::map<int, int> nodes;
  std::map<std::string, std::pair<int, std::set<int>>> kernels;  // ranks and CPUs by Linux kernel
  for (const json& description : descriptions) {
    const int node = nodes.emplace(description["first"], static_cast<int>(nodes.size())).first->second;
    members_.push_back({description["host"], description["boot_id"], description["pid"], description["cpu"], node,
                        description["allowed"]});
    auto& [ranks, cpus] = kernels[description["boot_id"]];
    ++ranks;
    cpus.insert(members_.back().allowed.begin(), members_.back().allowed.end());
  }
  for (const auto& [id, usage] : kernels)
    oversubscribed_ = oversubscribed_ || usage.first > static_cast<int>(usage.second.size());
  find_offsets();
  transport_ = broadcast(find_transport());
  if (threaded && provided < MPI_THREAD_FUNNELED)
    throw Failure(library_ + " supports no threads (MPI_THREAD_FUNNELED)", "--threads 1");
}

std::vector<int> World::divide_cpus(int threads) {
  const auto sharers = [&](const Member& member, int below) {
    return std::count_if(members_.begin(), members_.begin() + below, [&](const Member& other) {
      return other.boot_id == member.boot_id && other.allowed == member.allowed;
    });
  };
  std::size_t fewest = members_.front().allowed.size();
  for (const Member& member : members_)
    fewest = std::min(fewest, member.allowed.size() / static_cast<std::size_t>(std::max(1L, sharers(member, size_))));
  const std::size_t per_rank = threads > 0 ? static_cast<std::size_t>(threads) : std::max<std::size_t>(1, fewest);
  const Member& self = members_[static_cast<std::size_t>(rank_)];
  const std::vector<int> cpus = share_of_cpus(topology(), self.allowed, static_cast<std::size_t>(sharers(self, size_)),
                                              static_cast<std::size_t>(sharers(self, rank_)), per_rank);
  std::set<std::pair<std::string, int>> distinct_cpus;
  std::size_t requested_cpus = 0;
  const auto all_cpus = gather(cpus);
  for (std::size_t r = 0; r < all_cpus.size(); ++r)
    for (const int cpu : all_cpus[r]) ++requested_cpus, distinct_cpus.emplace(members_[r].boot_id, cpu);
  oversubscribed_ = oversubscribed_ || distinct_cpus.size() < requested_cpus;
  return cpus;
}

void World::check_request(Run& run) const {
  const auto requested_sizes = run.integers("ranks", size_);
  if (std::find(requested_sizes.begin(), requested_sizes.end(), size_) == requested_sizes.end())
    throw UsageError("ranks", "found " + std::to_string(size_) + ", which the launcher started", run.text("ranks"));
  const auto kinds = run.choices("mpi");
  if (std::none_of(kinds.begin(), kinds.end(), [&](const std::string& kind) {
        return kind == "any" || kind == "all" || kind == "mpi" || kind == kind_;
      }))
    throw UsageError("mpi", "found " + kind_ + ", whose launcher started this", run.text("mpi"));
  json processes = json::array();
  for (const Member& m : members_) processes.push_back({{"host", m.host}, {"pid", m.pid}, {"cpu", m.cpu}});
  run.processes(processes);
}

int World::end(int status) {
  if (!started_) return status;
  started_ = false;
  if (status != 0 && status != 77 && status != 2) abort_read(status);
  // Only rank 0 knows what an earlier output contains, and hence whether there are results.
  if (status != 2) MPI_Bcast(&status, 1, MPI_INT, 0, all());
  if (kind_ == "mpich") {
    // MPICH 4.0 may hang in MPI_Finalize, as four ranks over UCX's TCP on two CPUs do in half of all runs: a rank waits
    // for answers of ranks that no longer progress (pmodels/mpich 6596). All output is written, so exit normally.
    status_at_end = status;
    if (const char* socket = std::getenv("PMI_FD")) launcher_socket = std::atoi(socket);
    std::signal(SIGALRM, [](int) {
      leave_launcher();
      _exit(status_at_end);
    });
    alarm(kEnd_s);
  }
  for (auto finish = finish_.rbegin(); finish != finish_.rend(); ++finish) (*finish)();
  // MPICH 4.0 over UCX aborts in MPI_Finalize if a window was not freed; its launcher accepts ranks that just exit.
  if (kept_ && kind_ == "mpich") {
    std::fflush(nullptr);
    leave_launcher();
    _exit(status);
  }
  int finalized = 0;  // OpenSHMEM or co-arrays may have ended MPI too
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Finalize();
  return status;
}

void abort_job(const std::string& message) {
  const int rank = World::get().rank();
  mute(false);
  report_error("meshmark-comm", Failure("rank " + std::to_string(rank) + ": " + message));
  abort_read(1);
  std::abort();
}

/// Measures the clock offsets. Rank 0 asks each rank for its time; the answer with the shortest round trip is the most
/// accurate (Cristian 1989).
void World::find_offsets() {
  std::vector<double> offsets(static_cast<std::size_t>(size_) * 2, 0.0);
  for (int other = 1; other < size_; ++other) {
    if (rank_ != 0 && rank_ != other) continue;
    double best = 1e9;
    for (int i = 0; i < kOffsetRounds; ++i) {
      double remote_s = 0;
      if (rank_ == 0) {
        const double send_s = seconds(ticks());
        check(MPI_Send(nullptr, 0, MPI_BYTE, other, 7, all()), "MPI_Send");
        check(MPI_Recv(&remote_s, 1, MPI_DOUBLE, other, 7, all(), MPI_STATUS_IGNORE), "MPI_Recv");
        const double receive_s = seconds(ticks());
        if (receive_s - send_s < best) {
          best = receive_s - send_s;
          offsets[static_cast<std::size_t>(other) * 2] = remote_s - (send_s + receive_s) / 2;
          offsets[static_cast<std::size_t>(other) * 2 + 1] = best / 2;
        }
      } else {
        check(MPI_Recv(nullptr, 0, MPI_BYTE, 0, 7, all(), MPI_STATUS_IGNORE), "MPI_Recv");
        remote_s = seconds(ticks());
        check(MPI_Send(&remote_s, 1, MPI_DOUBLE, 0, 7, all()), "MPI_Send");
      }
    }
  }
  check(MPI_Bcast(offsets.data(), 2 * size_, MPI_DOUBLE, 0, all()), "MPI_Bcast");
  offset_s_ = offsets[static_cast<std::size_t>(rank_) * 2];
  for (std::size_t i = 1; i < offsets.size(); i += 2) uncertain_s_ = std::max(uncertain_s_, offsets[i]);
}

bool World::start_together(const std::function<void()>& last) {
  check(MPI_Barrier(all()), "MPI_Barrier");
  if (oversubscribed_) {
    last();
    return true;
  }
  double start_s = now_s() + lead_s_;
  check(MPI_Bcast(&start_s, 1, MPI_DOUBLE, 0, all()), "MPI_Bcast");
  const double local_start_s = start_s + offset_s_;
  last();
  const bool late = seconds(ticks()) > local_start_s;
  while (seconds(ticks()) < local_start_s) {}
  return !late;
}

void World::adjust_lead(bool late) {
  lead_s_ = late ? std::min(lead_s_ * 1.5, kMaxLead_s) : std::max(lead_s_ * 0.99, kMinLead_s);
}

std::size_t World::available_bytes() {
  const std::string& id = members_[static_cast<std::size_t>(rank_)].boot_id;
  const auto ranks_on_host =
      std::count_if(members_.begin(), members_.end(), [&](const Member& m) { return m.boot_id == id; });
  // A tenth of the memory is left to other processes.
  auto share = static_cast<double>(memory_available()) * 0.9 / static_cast<double>(ranks_on_host);
  rlimit limit{};
  std::size_t pages = 0;
  if (std::istringstream in(first_line("/proc/self/statm"));
      getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && in >> pages)
    share = std::min(share, static_cast<double>(limit.rlim_cur) -
                                static_cast<double>(pages) * static_cast<double>(sysconf(_SC_PAGESIZE)));
  double min = 0;
  check(MPI_Allreduce(&share, &min, 1, MPI_DOUBLE, MPI_MIN, all()), "MPI_Allreduce");
  return static_cast<std::size_t>(std::max(0.0, min));
}

/// Calls `make`. Returns null, or the error of the lowest rank that failed.
json World::attempt(const std::function<void()>& make) {
  json local_error = nullptr;
  const auto set_error = [&](const std::string& reason, const std::string& enable) {
    local_error = {{"reason", "rank " + std::to_string(rank_) + ": " + reason}, {"enable", enable}};
  };
  try {
    make();
  } catch (const Absent& error) {
    set_error(error.what(), error.enable);
  } catch (const Failure& error) {
    set_error(error.what(), "");
  } catch (const std::bad_alloc&) {
    set_error("out of memory", "smaller messages, or more memory");
  }
  json first = nullptr;
  bool all_alike = true;
  for (const json& rank_error : gather(local_error)) {
    all_alike = all_alike && !rank_error.is_null();
    if (first.is_null()) first = rank_error;
  }
  // If all ranks failed, the message names no rank.
  if (all_alike && !first.is_null()) first["reason"] = first["reason"].get<std::string>().substr(8);
  return first;
}

void World::check_all(int status, const char* call) {
  int failed = status != MPI_SUCCESS, any_failed = 0;
  check(MPI_Allreduce(&failed, &any_failed, 1, MPI_INT, MPI_MAX, all()), "MPI_Allreduce");
  if (any_failed == 0) return;
  std::string message;
  try {
    check(status, call);
  } catch (const Failure& failure) {
    message = failure.what();
  }
  const auto errors = gather(message);
  for (std::size_t r = 0; r < errors.size(); ++r)
    if (const auto error = errors[r].get<std::string>(); !error.empty())
      throw Failure("rank " + std::to_string(r) + ": " + error);
}

std::vector<json> World::gather(const json& mine) {
  const std::string text = mine.dump(-1, ' ', false, json::error_handler_t::replace);
  int length = static_cast<int>(text.size());
  std::vector<int> lengths(static_cast<std::size_t>(size_)), starts(static_cast<std::size_t>(size_));
  check(MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, all()), "MPI_Allgather");
  int total = 0;
  for (std::size_t r = 0; r < lengths.size(); ++r) starts[r] = total, total += lengths[r];
  std::string whole(static_cast<std::size_t>(total), ' ');
  check(MPI_Allgatherv(text.data(), length, MPI_CHAR, whole.data(), lengths.data(), starts.data(), MPI_CHAR, all()),
        "MPI_Allgatherv");
  std::vector<json> values;
  for (std::size_t r = 0; r < lengths.size(); ++r)
    values.push_back(
        json::parse(whole.substr(static_cast<std::size_t>(starts[r]), static_cast<std::size_t>(lengths[r]))));
  return values;
}

json World::broadcast(const json& value) { return gather(rank_ == 0 ? value : json(nullptr)).front(); }

/// Returns the medium of a large message from each rank to the next: the interfaces whose counters grew by the message,
/// or shared memory if none did. These are the operating system's counters, because a library may use shared memory
/// although its options forbid it: between network namespaces of one Linux kernel, which appear as hosts.
std::string World::find_transport() {
  if (size_ == 1) return "none";
  std::vector<char> out(kProbe_bytes, 1), in(kProbe_bytes);
  const int next = (rank_ + 1) % size_, previous = (rank_ + size_ - 1) % size_;
  const auto exchange = [&] {
    check(MPI_Sendrecv(out.data(), static_cast<int>(kProbe_bytes), MPI_BYTE, next, 8, in.data(),
                       static_cast<int>(kProbe_bytes), MPI_BYTE, previous, 8, all(), MPI_STATUS_IGNORE),
          "MPI_Sendrecv");
  };
  exchange();  // the first message establishes connections
  // The counters cover all ranks of a host. Their minimum over rounds excludes most traffic of other processes.
  std::map<std::string, double> per_message;
  for (int round = 0; round < kProbe_rounds; ++round) {
    check(MPI_Barrier(all()), "MPI_Barrier");
    const auto sent_before = sent_bytes();
    check(MPI_Barrier(all()), "MPI_Barrier");
    exchange();
    check(MPI_Barrier(all()), "MPI_Barrier");
    for (const auto& [name, bytes] : sent_bytes()) {
      const auto entry = sent_before.find(name);
      const double growth =
          (bytes - (entry == sent_before.end() ? 0 : entry->second)) / static_cast<double>(kProbe_bytes);
      const auto [min, first] = per_message.try_emplace(name, round == 0 ? growth : 0);
      if (!first) min->second = std::min(min->second, growth);
    }
  }
  json growths = json::object();
  for (const auto& [name, min] : per_message)
    if (min > 0.1) growths[name] = min;
  struct HostMessages {
    int inside = 0, outside = 0, other_kernel = 0;  ///< messages to ranks of this host, of others, of other kernels
    double seen = 0;
  };
  std::map<std::string, HostMessages> hosts;
  std::set<std::string> ways;
  const auto all_growths = gather(growths);
  for (std::size_t r = 0; r < members_.size(); ++r) {
    const Member &from = members_[r], &to = members_[(r + 1) % members_.size()];
    HostMessages& host = hosts[from.host];
    ++(from.host == to.host ? host.inside : host.outside);
    if (from.boot_id != to.boot_id) ++host.other_kernel;
    host.seen = 0;
    for (const auto& [name, messages] : all_growths[r].items()) {
      host.seen += messages.get<double>();
      ways.insert((name.find('/') == std::string::npos ? "network " : "fabric ") + name);
    }
  }
  for (const auto& [name, host] : hosts) {
    if (host.outside > 0 && host.seen < 0.9 * host.outside)
      ways.insert(host.other_kernel > 0 ? "a network without counters here"
                                        : "shared memory between hosts of one kernel");
    if (host.inside > 0 && host.seen < 0.9 * (host.inside + host.outside)) ways.insert("shared memory");
  }
  std::string text;
  for (const std::string& way : ways) text += (text.empty() ? "" : ", ") + way;
  return text;
}

namespace {

/// Returns the current thread level, which another library (OpenSHMEM, co-arrays) may have raised. It determines
/// locking.
const char* thread_level() {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  return level == MPI_THREAD_SINGLE       ? "single"
         : level == MPI_THREAD_FUNNELED   ? "funneled"
         : level == MPI_THREAD_SERIALIZED ? "serialized"
                                          : "multiple";
}

}  // namespace

json World::conditions() const {
  std::string cpus, hosts;
  std::set<std::string> host_set;
  std::set<int> nodes;
  for (const Member& m : members_) {
    cpus += (cpus.empty() ? "" : ",") + std::to_string(m.cpu);
    host_set.insert(m.host);
    nodes.insert(m.node);
  }
  for (const std::string& h : host_set) hosts += (hosts.empty() ? "" : ",") + h;
  json values{{"ranks", size_},
              {"hosts", static_cast<int>(host_set.size())},
              {"host_names", hosts},
              {"memory_groups", static_cast<int>(nodes.size())},
              {"mpi", kind_},
              {"library", library_},
              {"thread_level", thread_level()},
              {"transport", transport_},
              {"clock_offset_uncertainty", uncertain_s_}};
  if (const char* job = std::getenv("SLURM_JOB_ID")) values["slurm_job_id"] = job;
  return values;
}

json World::lasting_conditions() const {
  json values = conditions();
  values.erase("clock_offset_uncertainty");
  values.erase("slurm_job_id");
  return values;
}

}  // namespace mm::mpi
