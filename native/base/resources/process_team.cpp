#include "base/resources/process_team.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "base/error.hpp"
#include "base/resources/child.hpp"
#include "base/resources/team.hpp"

namespace mm {

struct ProcessTeam::Shared {
  std::atomic<int> arrived{0};
  Order order{};
};

/// Part of the shared memory that one process writes, in cache lines that it does not share.
struct alignas(64) ProcessTeam::Member {
  Ticks begin = 0, end = 0;
  double value = 0;
  bool moved = false;
  long faults = 0;
  char error[256] = "";
};

ProcessTeam::ProcessTeam(std::vector<int> cpus, const std::function<Work(int)>& prepare) : cpus_(std::move(cpus)) {
  bytes_ = (sizeof(Shared) + 63) / 64 * 64 + cpus_.size() * sizeof(Member);
  void* map = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED)
    throw Failure(std::string("cannot map shared memory for the processes: ") + std::strerror(errno));
  shared_ = new (map) Shared;
  members_ = reinterpret_cast<Member*>(static_cast<char*>(map) + (sizeof(Shared) + 63) / 64 * 64);
  values_.resize(cpus_.size());
  try {
    for (int rank = 0; rank < size(); ++rank) {
      new (members_ + rank) Member;
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        throw Failure(std::string("cannot create a socket for a process: ") + std::strerror(errno));
      lines_.push_back(ends[0]);
      const Fd member_end(ends[1]);
      const pid_t pid = start_child();
      if (pid == 0) {
        for (int fd : lines_) close(fd);  // descriptors open here would hide the parent's death from the others
        serve(rank, member_end.get(), prepare);
      }
      pids_.push_back(pid);
    }
    wait_for_all();
  } catch (...) {
    end();
    throw;
  }
}

ProcessTeam::~ProcessTeam() { end(); }

void ProcessTeam::end() {
  for (int fd : lines_) close(fd);
  for (int pid : pids_) {
    kill(pid, SIGKILL);
    wait_for_child(pid);
  }
  lines_.clear();
  pids_.clear();
  if (shared_ != nullptr) munmap(shared_, bytes_);
  shared_ = nullptr;
}

void ProcessTeam::serve(int rank, int line, const std::function<Work(int)>& prepare) {
  Member& me = members_[rank];
  char byte = 0;
  try {
    const int cpu = cpus_[static_cast<std::size_t>(rank)];
    pin(cpu);
    const Work work = prepare(rank);
    while (send(line, &byte, 1, MSG_NOSIGNAL) == 1 && read(line, &byte, 1) == 1) {
      rusage before{}, after{};
      getrusage(RUSAGE_SELF, &before);
      shared_->arrived.fetch_add(1);
      for (int spins = 0; shared_->arrived.load(std::memory_order_acquire) < size(); ++spins)
        if (spins > 1 << 10) sched_yield();  // if a process dies before it arrives, the parent kills the others
      me.begin = ticks();
      me.value = work(shared_->order);
      me.end = ticks();
      getrusage(RUSAGE_SELF, &after);
      me.moved = sched_getcpu() != cpu;
      me.faults = faults_of(after) - faults_of(before);
    }
  } catch (const std::exception& error) {
    std::strncpy(me.error, error.what(), sizeof me.error - 1);
    _exit(1);
  }
  _exit(0);
}

/// Waits for one byte from every process, in any order: if one dies, the others do not answer.
void ProcessTeam::wait_for_all() {
  std::vector<pollfd> polls;
  for (int fd : lines_) polls.push_back({fd, POLLIN, 0});
  for (std::size_t pending = polls.size(); pending > 0;) {
    if (poll(polls.data(), polls.size(), -1) < 0) {
      if (errno == EINTR) continue;
      throw Failure(std::string("cannot wait for the processes: ") + std::strerror(errno));
    }
    for (std::size_t rank = 0; rank < polls.size(); ++rank) {
      if (polls[rank].revents == 0) continue;
      char byte = 0;
      if (read(lines_[rank], &byte, 1) != 1) {
        const char* message = members_[rank].error;
        throw Failure(*message != 0 ? std::string(message) : "process " + std::to_string(rank) + " of the team died");
      }
      polls[rank].fd = -1;  // poll ignores it
      --pending;
    }
  }
}

const std::vector<double>& ProcessTeam::run(const Order& order) {
  shared_->order = order;
  shared_->arrived = 0;
  const char byte = 1;
  for (int fd : lines_)
    if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1) throw Failure("a process of the team died");
  wait_for_all();
  for (int rank = 0; rank < size(); ++rank) values_[static_cast<std::size_t>(rank)] = members_[rank].value;
  return values_;
}

double ProcessTeam::elapsed_s() const {
  Ticks begin = ~Ticks{0}, end = 0;
  for (int rank = 0; rank < size(); ++rank) {
    begin = std::min(begin, members_[rank].begin);
    end = std::max(end, members_[rank].end);
  }
  return seconds(end - begin);
}

bool ProcessTeam::moved() const {
  return std::any_of(members_, members_ + size(), [](const Member& m) { return m.moved; });
}

bool ProcessTeam::faulted() const {
  return std::any_of(members_, members_ + size(), [](const Member& m) { return m.faults > 0; });
}

}  // namespace mm
