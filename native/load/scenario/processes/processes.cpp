#include "load/scenario/processes/processes.hpp"

#include <unistd.h>

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "base/harness/output.hpp"

namespace mm::load {
namespace {

constexpr double kPagesShare = 0.001;  // maximum share of time
constexpr double kPagesEvery_s = 1;    // initial interval; it grows

}  // namespace

Processes::Processes(const RunClock& clock, const Journal& journal, const Jobs& jobs)
    : clock_(clock), journal_(journal), jobs_(jobs), search_(clock), uses_(jobs.all.size()) {}

std::optional<std::size_t> Processes::job_of(pid_t pid) const {
  const auto entry = all_.find(pid);
  return entry == all_.end() ? std::nullopt : std::optional(entry->second.job);
}

JobUse Processes::use_of(std::size_t job) const {
  JobUse use = uses_[job];
  for (const auto& [pid, process] : all_)
    if (process.job == job)
      for (const auto& [node, n] : process.bytes) use.bytes[node] += n;
  return use;
}

Process& Processes::add(pid_t pid, std::size_t job) {
  Process& process = all_[pid];
  process.job = job;
  process.since_s = clock_.now();
  process.sampled_s = search_.last_s();
  process.next_pages_s = process.since_s + 0.3;
  ++uses_[job].processes;
  find_threads(pid, process);
  return process;
}

double Processes::set_base(std::size_t job) {
  const pid_t pid = jobs_.all[job].child.pid;
  if (!all_.contains(pid)) add(pid, job);
  Process& process = all_[pid];
  find_threads(pid, process);
  for (Thread& thread : process.threads) {
    thread.sample(clock_);
    thread.set_base(clock_);
  }
  const double at_s = clock_.now();
  for (Thread& thread : process.threads) {
    thread.base.at_s = thread.last.at_s = at_s;
    thread.reported = thread.last;
  }
  return at_s;
}

void Processes::find_threads(pid_t pid, Process& process) {
  for (const pid_t id : numbers_in("/proc/" + std::to_string(pid) + "/task")) {
    if (std::any_of(process.threads.begin(), process.threads.end(),
                    [&](const Thread& t) { return t.id == id && !t.ended; }))
      continue;
    Thread thread(threads_, process.job, pid, id);
    thread.sample(clock_);
    if (thread.ended) continue;
    ++threads_;
    // The start of the thread in clock ticks, limited to the time between the release of its program and now.
    const Job& job = jobs_.all[process.job];
    const double born_s = std::max(clock_.of_boot_ticks(thread.started), process.sampled_s);
    thread.set_birth(std::clamp(born_s, job.released_s, thread.last.at_s), clock_);
    emit({{"type", "thread"},
          {"t_s", rounded(thread.base.at_s)},
          {"thread", thread.number},
          {"program", job.start->name},
          {"copy", job.start->copy},
          {"pid", pid},
          {"tid", id},
          {"command", thread.command}});
    process.threads.push_back(std::move(thread));
  }
}

void Processes::find_processes() {
  const auto is_known = [&](pid_t pid) {
    const auto entry = all_.find(pid);
    return entry != all_.end() && !entry->second.ended;
  };
  const auto adopt = [&](pid_t pid, pid_t parent) {
    std::optional<std::size_t> job;
    if (const auto by_pid = jobs_.by_pid.find(pid); by_pid != jobs_.by_pid.end())
      job = by_pid->second;
    else if (const auto by_parent = job_of(parent))
      job = by_parent;
    else if (parent == ::getpid())  // an orphan: it belongs to the group of the program that started it
      if (const auto group = jobs_.by_pid.find(::getpgid(pid)); group != jobs_.by_pid.end()) job = group->second;
    if (job && jobs_.all[*job].phase == Phase::released) {
      all_.erase(pid);  // the identifier of an ended process was reused
      add(pid, *job);
    }
    return job.has_value();
  };
  search_.run(is_known, adopt);
}

void Processes::sample() {
  find_processes();
  const double at_s = clock_.now();
  SampleLine line(at_s);
  for (auto& [pid, process] : all_)
    if (!process.ended) sample_process(pid, process, line, at_s);
  ++samples_;
  line.write();
}

void Processes::sample_process(pid_t pid, Process& process, SampleLine& line, double at_s) {
  std::size_t alive = 0, thread_count = 0;
  const auto sample_thread = [&](Thread& thread) {
    thread.sample(clock_);
    if (thread.ended) return;
    line.add(thread);
    if (thread.last.state == 'Z' && thread.siblings <= 1) {
      thread.ended = true;  // a zombie does not run, even if its parent never reaps it
      thread.count_migrations(clock_);
      return;
    }
    ++alive;
    thread_count = thread.siblings;
    if (at_s >= thread.next_migrations_s) thread.count_migrations(clock_);
  };
  for (Thread& thread : process.threads) sample_thread(thread);
  if (alive != thread_count) {
    const std::size_t known_count = process.threads.size();
    find_threads(pid, process);
    for (std::size_t i = known_count; i < process.threads.size(); ++i) sample_thread(process.threads[i]);
  }
  finish_ended(process);
  process.sampled_s = at_s;
  if (process.threads.empty())
    process.ended = true;
  else if (at_s >= process.next_pages_s)
    count_pages(pid, process, at_s);
}

void Processes::count_pages(pid_t pid, Process& process, double at_s) {
  const double before_s = own_cpu_s();
  std::optional<std::map<int, std::uint64_t>> bytes;
  try {
    bytes = pages_.count(pid);
  } catch (const Absent&) {
    process.next_pages_s = kNever_s;
  }
  if (!bytes) return;
  // Scaled by the number of processes, so that all of them together stay within the share.
  const double cost_s = (own_cpu_s() - before_s) * static_cast<double>(std::max<std::size_t>(all_.size(), 1));
  process.next_pages_s = at_s + std::max({kPagesEvery_s, (at_s - process.since_s) / 4, cost_s / kPagesShare});
  if (bytes->empty() || *bytes == process.bytes) return;
  process.bytes = *bytes;
  json by_node = json::object();
  for (const auto& [node, n] : process.bytes) by_node[std::to_string(node)] = n;
  const Start& s = *jobs_.all[process.job].start;
  emit({{"type", "pages"},
        {"t_s", rounded(at_s)},
        {"program", s.name},
        {"copy", s.copy},
        {"pid", pid},
        {"bytes", by_node}});
}

void Processes::sample_last(pid_t pid, double at_s) {
  const auto entry = all_.find(pid);
  if (entry == all_.end() || entry->second.ended) return;
  Process& process = entry->second;
  SampleLine line(at_s);
  for (Thread& thread : process.threads) {
    if (thread.ended) continue;
    if (thread.id == pid) {
      thread.sample(clock_);
      if (!thread.ended) {
        thread.last.at_s = at_s;
        line.add(thread);
        thread.count_migrations(clock_);
      }
    }
    thread.ended = true;
  }
  process.ended = true;
  line.write();
  finish_ended(process);
}

void Processes::finish_ended(Process& process) {
  for (const Thread& thread : process.threads) {
    if (!thread.ended) continue;
    const Use use = thread.use();
    journal_.thread_total(*jobs_.all[thread.job].start, thread, use);
    JobUse& sum = uses_[thread.job];
    sum.ran_s += use.ran_s, sum.waiting_s += use.waiting_s, sum.sleeping_s += use.sleeping_s;
    sum.migrations += use.migrations;
    ++sum.threads;
  }
  std::erase_if(process.threads, [](const Thread& thread) { return thread.ended; });
}

void Processes::finish_all() {
  for (auto& [pid, process] : all_) {
    for (Thread& thread : process.threads) thread.ended = true;
    finish_ended(process);
  }
}

}  // namespace mm::load
