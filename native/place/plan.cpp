/// meshmark-place plan: shows what a policy would do with successive jobs, as a table or as JSON.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "base/harness/output.hpp"
#include "base/json.hpp"
#include "base/options/arguments.hpp"
#include "base/options/options.hpp"
#include "base/text.hpp"
#include "place/binding/bind.hpp"
#include "place/command.hpp"
#include "place/policy/policy.hpp"

namespace mm::place {
namespace {

using Index = std::size_t;

json job_of(const Machine& machine, int slots, const Placement& placement) {
  const std::vector<int> cpus = placement.layout.cpus();
  std::set<int> nodes;
  std::vector<int> cpus_without_node;
  for (const int id : cpus) {
    const Cpu& cpu = machine.cpu(id);
    if (cpu.has_node)
      nodes.insert(cpu.node);
    else
      cpus_without_node.push_back(id);
  }
  json job{{"slots", slots}, {"cpus", cpus}, {"parts", placement.layout.parts}};
  job["relative"] = relative(cpus, machine.allowed);
  job["nodes"] = nodes;
  const std::string reason = !cpus_without_node.empty()
                                 ? "the node of CPUs " + cpu_list(cpus_without_node) + " is unknown"
                             : placement.layout.parts.size() < 2 ? "fewer than two parts"
                             : machine.distance_from.empty()     ? "distances are unknown"
                                                                 : "only compact computes one";
  const auto value_or_absent = [&](const std::optional<double>& value) {
    return value && cpus_without_node.empty() ? json(*value) : json{{"absent", reason}};
  };
  job["mean_distance"] = value_or_absent(placement.mean_distance);
  job["bound"] = value_or_absent(placement.bound);
  job["optimal"] = placement.optimal;
  job["oversubscribed"] = placement.oversubscribed;
  job["why"] = placement.why;
  if (!cpus_without_node.empty()) {
    job["optimal"] = false;
    job["why"] = reason;
  }
  const std::vector<CoreKind> kinds = kinds_of(machine, cpus);
  std::string mixture;
  for (const CoreKind& kind : kinds) {
    job["core_kinds"][kind.name] = kind.cpus;
    mixture += (mixture.empty() ? "" : ", ") + cpu_list(kind.cpus) + " are " + kind.name;
  }
  if (kinds.size() > 1) job["why"] = job["why"].get<std::string>() + "; the kinds of cores differ: " + mixture;
  return job;
}

std::string table(const json& plan, const std::string& topology) {
  std::ostringstream out;
  const json& m = plan["machine"];
  out << topology << ": " << m["summary"].get<std::string>() << "\n\n";
  std::vector<std::vector<std::string>> rows = {{"job", "slots", "CPUs", "nodes", "distance", "why"}};
  int number_of = 0;
  for (const json& job : plan["jobs"]) {
    std::vector<std::string> row = {std::to_string(++number_of), job["slots"].dump()};
    if (job.contains("refused")) {
      row.insert(row.end(), {"-", "-", "-", "refused: " + job["refused"].get<std::string>()});
    } else {
      const auto cpus = job["cpus"].get<std::vector<int>>(), nodes = job["nodes"].get<std::vector<int>>();
      row.insert(row.end(), {cpus.empty() ? "any" : cpu_list(cpus),
                             cpus.empty()    ? "any"
                             : nodes.empty() ? "unknown"
                                             : cpu_list(nodes),
                             job["mean_distance"].is_number() ? four_digits(job["mean_distance"].get<double>()) : "-",
                             job["why"].get<std::string>()});
    }
    rows.push_back(std::move(row));
  }
  out << aligned(rows);
  return out.str();
}

json machine_json(const Machine& machine, const std::string& topology) {
  std::set<int> cores, packages;
  for (const Cpu& c : machine.cpus) {
    cores.insert(c.core);
    if (c.has_package) packages.insert(c.package);
  }
  json m{{"topology", topology},
         {"origin", machine.origin},
         {"cpus", machine.cpus.size()},
         {"cores", cores.size()},
         {"packages", packages.size()},
         {"nodes", machine.nodes.size()},
         {"allowed", cpu_list(machine.allowed)}};
  m["distances"] = machine.distance_from.empty() ? json{{"absent", "all nodes are considered equally distant"}}
                                                 : json(machine.distance_from);
  const auto count = [](Index n, const std::string& argument) {
    return std::to_string(n) + " " + argument + (n == 1 ? "" : "s");
  };
  m["summary"] =
      (packages.empty() ? "unknown packages" : count(packages.size(), "package")) + ", " +
      count(machine.nodes.size(), "NUMA node") + ", " + count(cores.size(), "core") + ", " +
      count(machine.cpus.size(), "CPU") + "; distances: " +
      (machine.distance_from.empty() ? "none, all nodes are considered equally distant" : machine.distance_from);
  if (machine.kinds.empty()) return m;
  json kinds = json::array();
  std::string names;
  for (const CoreKind& kind : machine.kinds) {
    kinds.push_back({{"name", kind.name}, {"cpus", kind.cpus}});
    names += (names.empty() ? "" : ", ") + kind.name + " " + cpu_list(kind.cpus);
  }
  m["core_kinds"] = std::move(kinds);
  m["summary"] = m["summary"].get<std::string>() + "; kinds of cores: " + names;
  return m;
}

/// Writes in place, for files that are not regular or are in folders of other users. Does not block: fails for a FIFO
/// without a reader.
bool write_into(const std::string& path, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_TRUNC | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (file < 0) return false;
  fcntl(file, F_SETFL, O_WRONLY);
  const bool complete = write_all(file, text);
  return close(file) == 0 && complete;
}

/// Replaces a regular file atomically; follows links, and keeps mode and owner.
bool write_aside(std::string path, const struct stat* old, const std::string& text) {
  if (char* const target = realpath(path.c_str(), nullptr)) {
    path = target;
    free(target);
  }
  const std::size_t name = path.rfind('/') + 1;  // 0 without a folder
  std::string temporary_path = path.substr(0, name) + "." + path.substr(name, 200) + ".XXXXXX";
  const int file = mkostemp(temporary_path.data(), O_CLOEXEC);
  if (file < 0) return old != nullptr && write_into(path, text);
  const mode_t mask = umask(0);
  umask(mask);
  int error = 0;
  const auto check = [&error](bool done) {
    if (!done && error == 0) error = errno;
  };
  const bool foreign_owner = old != nullptr && fchown(file, old->st_uid, old->st_gid) != 0;
  check(fchmod(file, old != nullptr ? old->st_mode & 07777 : 0666 & ~mask) == 0);
  if (error == 0 && !foreign_owner) check(write_all(file, text) && fsync(file) == 0);
  check(close(file) == 0);
  if (error == 0 && !foreign_owner) check(rename(temporary_path.c_str(), path.c_str()) == 0);
  if (error != 0 || foreign_owner) unlink(temporary_path.c_str());
  errno = error;
  return foreign_owner && error == 0 ? write_into(path, text) : error == 0;
}

void write_to(const std::string& path, const std::string& text) {
  struct stat old{};
  const bool exists = stat(path.c_str(), &old) == 0;
  if (exists && !S_ISREG(old.st_mode) ? write_into(path, text) : write_aside(path, exists ? &old : nullptr, text))
    return;
  throw UsageError("--save", "cannot write " + shown_path(path) + ": " + errno_text(), "a writable file");
}

}  // namespace

int plan_verb(int argc, char** argv) {
  std::string topology = "host", policy = "balance", jobs = "1", kind = "cores", matrix, within, sharing, taken_list,
              in_use_list, save;
  bool as_json = false;
  Arguments app{
      "Show what a policy would do with successive jobs.\n\n"
      "example: meshmark place --topology 'pack:2 [numa] core:4 pu:1' --policy pack --jobs 2,2,2",
      "meshmark place"};
  app.add("--topology", topology, "host, a synthetic description, or an XML file of hwloc").show_default();
  std::string names;
  for (const auto& [argument, help] : policies())
    if (argument != "user") names += (names.empty() ? "" : ", ") + argument;
  app.add("--policy", policy, names + "; with ,near=DEVICE ,near=node:N ,distance<=HOPS ,kind=KIND ,exclude")
      .show_default();
  app.add("--jobs", jobs, "slots of each job: N,N,…").show_default();
  app.add("--slots", kind, "unit of allocation: procs (sockets), cores, threads").show_default();
  app.add("--matrix", matrix, "JSON file with measured distances between nodes, instead of the firmware's");
  app.add("--within", within, "use only these CPUs [all allowed CPUs]");
  app.add("--sharing", sharing, "JSON file with the traffic and bandwidth demand of the parts");
  app.add("--taken", taken_list, "CPUs that another job holds");
  app.add("--in-use", in_use_list, "CPUs that programs without a reservation use");
  app.flag("--json", as_json, "for programs");
  app.add("--save", save, "also write the JSON to this file");
  if (!app.read(argc, argv, "place")) return 0;

  Request request;
  parse_bind(policy, request);
  request.kind = parse_slot_kind("--slots", kind);
  std::vector<int> sizes;
  for (const std::string& argument : split(jobs, ',')) {
    const long long n = parse_integer("--jobs", argument);
    if (n < 1 || n > 65536)
      throw UsageError("--jobs", "found " + quote(argument), "1 to 65536 slots per job, as in 2,2,4");
    sizes.push_back(static_cast<int>(n));
  }
  Machine machine = machine_of(topology);
  if (!matrix.empty()) use_matrix(machine, matrix);
  if (!within.empty()) request.within = parse_cpu_list("--within", within, machine.allowed);
  if (!sharing.empty()) request.sharing = read_sharing(sharing);
  Occupancy taken;
  if (!taken_list.empty())
    for (const int cpu : parse_cpu_list("--taken", taken_list, machine.allowed)) taken.jobs[machine.cpu(cpu).id] = 1;
  if (!in_use_list.empty())
    for (const int cpu : parse_cpu_list("--in-use", in_use_list, machine.allowed)) taken.in_use.insert(cpu);

  json plan{{"machine", machine_json(machine, topology)},
            {"policy", policy},
            {"slots", name(request.kind)},
            {"jobs", json::array()}};
  const std::vector<int> list = request.list;
  Index used = 0, refused = 0;
  for (const int slots : sizes) {
    request.slots = slots;
    json job;
    try {
      if (request.policy == "list") {
        const auto n = static_cast<Index>(slots);
        if (used + n > list.size())
          throw Busy(std::to_string(list.size() - used) + " of " + std::to_string(list.size()) +
                     " CPUs of the list are left");
        request.list.assign(list.begin() + static_cast<long>(used), list.begin() + static_cast<long>(used + n));
        used += n;
      }
      const Placement placement = place(machine, request, taken);
      occupy(taken, placement, request.exclude);
      job = job_of(machine, slots, placement);
    } catch (const Busy& e) {
      job = {{"slots", slots}, {"refused", e.what()}};
    } catch (const UsageError& e) {
      if (e.field != "slots") throw;
      job = {{"slots", slots}, {"refused", e.what()}};
    }
    refused += job.contains("refused") ? 1 : 0;
    plan["jobs"].push_back(std::move(job));
  }
  if (!save.empty()) write_to(save, to_line(plan) + "\n");
  std::cout << (as_json ? to_line(plan) + "\n" : table(plan, topology)) << std::flush;
  if (refused > 0)
    throw Failure(std::to_string(refused) + " of " + std::to_string(sizes.size()) + " jobs could not be placed");
  return 0;
}

}  // namespace mm::place
