#include "place/observe/tree.hpp"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "place/observe/memory.hpp"

namespace mm::place::observe {

namespace {

/// Returns whether the identifier of an ended thread was reused.
bool is_another(pid_t process, const ObservedThread& thread) {
  const auto stat = parse_stat(read_text(task_folder(process, thread.id) + "stat"));
  return stat && stat->started != thread.last.started;
}

}  // namespace

ProcessTree::ProcessTree(const Context& context)
    : context_(context),
      by_children_(::access(("/proc/self/task/" + std::to_string(::syscall(SYS_gettid)) + "/children").c_str(), F_OK) ==
                   0) {
  int reaper = 0;
  subreaper_ = ::prctl(PR_GET_CHILD_SUBREAPER, &reaper) == 0 && reaper == 1;
  enter(context.root);
}

void ProcessTree::enter(pid_t id) {
  if (living.contains(id) || (id == ::getpid() && id != context_.root))
    return;  // the observer is not part of the program
  ObservedProcess& process = living[id];
  process.id = id;
  process.since_s = context_.elapsed();
  process.next_walk_s = process.since_s + kFirstPagesS;
}

void ProcessTree::find_children() {
  if (!by_children_) {
    // One scan of all processes: children of known processes are added in any order of identifiers.
    std::map<pid_t, std::vector<pid_t>> children = children_by_parent();
    std::vector<pid_t> pending;
    for (const auto& [id, process] : living) pending.push_back(id);
    if (subreaper_) pending.push_back(::getpid());
    while (!pending.empty()) {
      const pid_t parent = pending.back();
      pending.pop_back();
      for (const pid_t child : children[parent])
        if (!living.contains(child)) enter(child), pending.push_back(child);
    }
    return;
  }
  const auto enter_children = [&](pid_t process, pid_t thread) {
    std::string text = read_text(task_folder(process, thread) + "children");
    for (char *at = text.data(), *end = nullptr;; at = end) {
      const long id = std::strtol(at, &end, 10);
      if (end == at) break;
      enter(static_cast<pid_t>(id));
    }
  };
  if (subreaper_)
    for (const pid_t thread : numbers_in("/proc/self/task")) enter_children(::getpid(), thread);
  // Iterators of a map stay valid on insertion, and this loop reaches new processes with higher identifiers.
  for (auto& [id, process] : living)
    for (auto& [thread, unused] : process.threads) enter_children(id, thread);
}

void ProcessTree::find_threads(ObservedProcess& process) {
  const std::vector<pid_t> thread_ids = numbers_in("/proc/" + std::to_string(process.id) + "/task");
  for (auto at = process.threads.begin(); at != process.threads.end();) {
    const bool alive = std::find(thread_ids.begin(), thread_ids.end(), at->first) != thread_ids.end();
    if (!alive || (at->second.ended && is_another(process.id, at->second))) {
      at->second.stat.close();
      at->second.schedstat.close();
      process.ended_threads.push_back(std::move(at->second));
      at = process.threads.erase(at);
    } else {
      ++at;
    }
  }
  for (const pid_t id : thread_ids) process.threads.try_emplace(id, process.id, id);
  process.ended = thread_ids.empty();
}

std::vector<const ObservedProcess*> ProcessTree::all() const {
  std::vector<const ObservedProcess*> processes;
  for (const ObservedProcess& process : ended) processes.push_back(&process);
  for (const auto& [id, process] : living) processes.push_back(&process);
  std::sort(processes.begin(), processes.end(),
            [](const ObservedProcess* a, const ObservedProcess* b) { return a->since_s < b->since_s; });
  return processes;
}

}  // namespace mm::place::observe
