#include "world.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "base/host.hpp"
#include "base/options.hpp"
#include "base/output.hpp"
#include "base/team.hpp"

namespace mm::comm {
namespace {

constexpr int kOffsetRounds = 64;
constexpr std::size_t kProbe_bytes = 4 << 20;  // larger than what a host says on its network meanwhile

/// "Open MPI v4.1.4, package: …" → "Open MPI 4.1.4"; "MPICH Version:\t4.0.2\n…" → "MPICH 4.0.2".
std::pair<std::string, std::string> library_of() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  check(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
  std::string whole(text, static_cast<std::size_t>(length));
  std::string kind = "mpi";
  for (const auto& [says, name] :
       {std::pair{"Open MPI", "openmpi"}, std::pair{"Intel", "intelmpi"}, std::pair{"MVAPICH", "mvapich"},
        std::pair{"CRAY", "craympich"}, std::pair{"MPICH", "mpich"}})
    if (whole.find(says) != std::string::npos) {
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

/// Bytes sent so far by interface: what the kernel's networks and the fabric's ports count.
std::map<std::string, double> sent_bytes() {
  namespace fs = std::filesystem;
  std::map<std::string, double> all;
  std::ifstream dev("/proc/net/dev");
  for (std::string line; std::getline(dev, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::istringstream fields(line.substr(colon + 1));
    double value = 0;
    for (int i = 0; i < 9 && fields >> value;) ++i;
    all[line.substr(line.find_first_not_of(' '), colon - line.find_first_not_of(' '))] = value;
  }
  std::error_code ignored;
  for (const auto& device : fs::directory_iterator("/sys/class/infiniband", ignored))
    for (const auto& port : fs::directory_iterator(device.path() / "ports", ignored)) {
      std::ifstream in(port.path() / "counters/port_xmit_data");
      double words = 0;
      if (in >> words) all[device.path().filename().string() + "/" + port.path().filename().string()] = 4 * words;
    }
  return all;
}

}  // namespace

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

void World::start() {
  if (started_) return;
  int provided = 0;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  started_ = true;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  mute(rank_ != 0);
  std::tie(kind_, library_) = library_of();

  MPI_Comm near = MPI_COMM_NULL;
  check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &near), "MPI_Comm_split_type");
  int first = rank_;
  check(MPI_Bcast(&first, 1, MPI_INT, 0, near), "MPI_Bcast");
  MPI_Comm_free(&near);
  const auto all =
      gather({{"host", host_name()}, {"cpu", sched_getcpu()}, {"first", first}, {"allowed", allowed_cpus()}});
  std::map<int, int> nodes;
  std::map<std::string, std::pair<int, std::set<int>>> hosts;
  for (const json& one : all) {
    const int node = nodes.emplace(one["first"], static_cast<int>(nodes.size())).first->second;
    members_.push_back({one["host"], one["cpu"], node, one["allowed"]});
    auto& [ranks, cpus] = hosts[one["host"]];
    ++ranks;
    cpus.insert(members_.back().allowed.begin(), members_.back().allowed.end());
  }
  for (const auto& [host, of] : hosts)
    oversubscribed_ = oversubscribed_ || of.first > static_cast<int>(of.second.size());
  find_offsets();
  transport_ = tell(find_transport());
}

void World::expect(const Run& run) const {
  const auto wanted = run.integers("ranks", size_);
  if (std::find(wanted.begin(), wanted.end(), size_) == wanted.end())
    throw UsageError("ranks", "found " + std::to_string(size_) + ", which the launcher started", run.text("ranks"));
  const auto kinds = run.choices("mpi");
  for (const std::string& kind : kinds)
    if (kind == "any" || kind == "all" || kind == "mpi" || kind == kind_) return;
  throw UsageError("mpi", "found " + kind_ + ", whose launcher started this", run.text("mpi"));
}

void World::end(int status) {
  if (!started_) return;
  started_ = false;
  if (status != 0 && status != 77 && status != 2) MPI_Abort(MPI_COMM_WORLD, status);
  for (auto finish = finish_.rbegin(); finish != finish_.rend(); ++finish) (*finish)();
  int over = 0;  // a library that was started beside it may have ended it too
  MPI_Finalized(&over);
  if (!over) MPI_Finalize();
}

void give_up(const std::string& why) {
  const int rank = World::get().rank();
  mute(false);
  try {
    emit({{"type", "error"},
          {"field", nullptr},
          {"message", "rank " + std::to_string(rank) + ": " + why},
          {"allowed", nullptr}});
  } catch (const Failure&) {
    // Standard error still has the line.
  }
  std::fprintf(stderr, "meshmark-comm: error: rank %d: %s\n", rank, why.c_str());
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

/// Rank 0 asks each rank for its time; of many answers that of the shortest round trip is the nearest (Cristian 1989).
void World::find_offsets() {
  std::vector<double> found(static_cast<std::size_t>(size_) * 2, 0.0);
  for (int other = 1; other < size_; ++other) {
    if (rank_ != 0 && rank_ != other) continue;
    double best = 1e9;
    for (int i = 0; i < kOffsetRounds; ++i) {
      double theirs = 0;
      if (rank_ == 0) {
        const double sent = seconds(ticks());
        check(MPI_Send(nullptr, 0, MPI_BYTE, other, 7, all()), "MPI_Send");
        check(MPI_Recv(&theirs, 1, MPI_DOUBLE, other, 7, all(), MPI_STATUS_IGNORE), "MPI_Recv");
        const double came = seconds(ticks());
        if (came - sent < best) {
          best = came - sent;
          found[static_cast<std::size_t>(other) * 2] = theirs - (sent + came) / 2;
          found[static_cast<std::size_t>(other) * 2 + 1] = best / 2;
        }
      } else {
        check(MPI_Recv(nullptr, 0, MPI_BYTE, 0, 7, all(), MPI_STATUS_IGNORE), "MPI_Recv");
        theirs = seconds(ticks());
        check(MPI_Send(&theirs, 1, MPI_DOUBLE, 0, 7, all()), "MPI_Send");
      }
    }
  }
  check(MPI_Bcast(found.data(), 2 * size_, MPI_DOUBLE, 0, all()), "MPI_Bcast");
  offset_s_ = found[static_cast<std::size_t>(rank_) * 2];
  for (std::size_t i = 1; i < found.size(); i += 2) uncertain_s_ = std::max(uncertain_s_, found[i]);
}

bool World::together() {
  check(MPI_Barrier(all()), "MPI_Barrier");
  if (oversubscribed_) return true;
  double at = now_s() + lead_s_;
  check(MPI_Bcast(&at, 1, MPI_DOUBLE, 0, all()), "MPI_Bcast");
  const double until = at + offset_s_;
  int late = seconds(ticks()) > until;
  if (late) lead_s_ = std::min(lead_s_ * 1.5, 10e-3);
  while (seconds(ticks()) < until) {}
  return !late;
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
  std::vector<json> found;
  for (std::size_t r = 0; r < lengths.size(); ++r)
    found.push_back(
        json::parse(whole.substr(static_cast<std::size_t>(starts[r]), static_cast<std::size_t>(lengths[r]))));
  return found;
}

json World::tell(const json& what) { return gather(rank_ == 0 ? what : json(nullptr)).front(); }

/// What carries a large message from each rank to the next: the interface whose counter grew by it, or none, and then
/// it was memory. It asks the kernel, not the library, which may take a short cut that it was told not to take.
std::string World::find_transport() {
  if (size_ == 1) return "none";
  std::vector<char> out(kProbe_bytes, 1), in(kProbe_bytes);
  const int next = (rank_ + 1) % size_, before = (rank_ + size_ - 1) % size_;
  const auto exchange = [&] {
    check(MPI_Sendrecv(out.data(), static_cast<int>(kProbe_bytes), MPI_BYTE, next, 8, in.data(),
                       static_cast<int>(kProbe_bytes), MPI_BYTE, before, 8, all(), MPI_STATUS_IGNORE),
          "MPI_Sendrecv");
  };
  exchange();  // connections are made at the first message
  check(MPI_Barrier(all()), "MPI_Barrier");
  const auto sent_before = sent_bytes();
  check(MPI_Barrier(all()), "MPI_Barrier");
  exchange();
  check(MPI_Barrier(all()), "MPI_Barrier");
  json mine = json::array();
  for (const auto& [name, bytes] : sent_bytes())
    if (const auto old = sent_before.find(name);
        bytes - (old == sent_before.end() ? 0 : old->second) > 0.9 * static_cast<double>(kProbe_bytes))
      mine.push_back(name);
  std::set<std::string> names;
  bool memory = false;
  for (const json& one : gather(mine)) {
    memory = memory || one.empty();
    for (const json& name : one) names.insert(name.get<std::string>());
  }
  std::string text = memory ? "shared memory" : "";
  for (const std::string& name : names) {
    const bool fabric = name.find('/') != std::string::npos;
    text += (text.empty() ? "" : ", ") + ((fabric ? "fabric " : "network ") + name);
  }
  return text;
}

json World::conditions() const {
  std::string cpus, hosts;
  std::set<std::string> distinct;
  std::set<int> nodes;
  for (const Member& m : members_) {
    cpus += (cpus.empty() ? "" : ",") + std::to_string(m.cpu);
    distinct.insert(m.host);
    nodes.insert(m.node);
  }
  for (const std::string& h : distinct) hosts += (hosts.empty() ? "" : ",") + h;
  return {{"ranks", size_},
          {"hosts", static_cast<int>(distinct.size())},
          {"host_names", hosts},
          {"memory_groups", static_cast<int>(nodes.size())},
          {"mpi", kind_},
          {"library", library_},
          {"transport", transport_},
          {"clock_offset_uncertainty", uncertain_s_}};
}

}  // namespace mm::comm
