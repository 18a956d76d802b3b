#include "place/mix/verb.hpp"

#include <cmath>
#include <iostream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/input_file.hpp"
#include "base/json.hpp"
#include "base/options/arguments.hpp"
#include "base/options/options.hpp"
#include "base/text.hpp"
#include "place/mix/live.hpp"
#include "place/mix/simulation.hpp"
#include "place/policy/policy.hpp"

namespace mm::place::mix {
namespace {

/// Reads `[[submit_s, run_s, slots, bytes_per_s], …]`.
std::vector<MixJob> read_jobs(const std::string& file) {
  const json content = parse_json(read_input_of("--jobs", file));
  const std::string allowed = "a list of [submit_s, run_s, slots, bytes_per_s]";
  if (!content.is_array()) throw UsageError("--jobs", shown_path(file) + " is no list of jobs", allowed);
  std::vector<MixJob> jobs;
  for (const json& row : content) {
    bool is_valid = row.is_array() && row.size() == 4;
    for (std::size_t i = 0; is_valid && i < 4; ++i)
      is_valid = row[i].is_number() && std::isfinite(row[i].get<double>()) && row[i].get<double>() >= 0;
    is_valid = is_valid && row[1].get<double>() > 0 && row[2].is_number_integer() && row[2].get<double>() >= 1 &&
               row[2].get<double>() <= 1e6;
    if (!is_valid)
      throw UsageError("--jobs", "found " + row.dump() + " as job " + std::to_string(jobs.size()), allowed);
    jobs.push_back({row[0].get<double>(), row[1].get<double>(), row[2].get<int>(), row[3].get<double>()});
  }
  return jobs;
}

/// Returns how the jobs fared, by job.
json simulated(const Machine& machine, const Settings& settings, const std::vector<MixJob>& jobs, std::size_t slots) {
  json answer{{"slots", slots}, {"jobs", json::array()}};
  for (const JobOutcome& outcome : simulate(machine, settings, jobs)) {
    json job;
    if (!outcome.refused.empty()) {
      job["refused"] = outcome.refused;
    } else {
      job = {{"start_s", outcome.start_s}, {"end_s", outcome.end_s}, {"cpus", cpu_list(outcome.cpus)}};
      if (outcome.oversubscribed) job["oversubscribed"] = true;
    }
    answer["jobs"].push_back(std::move(job));
  }
  return answer;
}

}  // namespace

int mix_verb(int argc, char** argv) {
  std::string topology = "host", policy = "balance", kind = "cores", jobs_file, within, matrix, discipline = "fcfs";
  std::string max_slots = "machine";
  bool is_live = false;
  Settings settings;
  Arguments app{
      "Simulate a mix of jobs that arrive, wait and run under a policy.\n\n"
      "With --live, another program runs the jobs: for each line `submit N` or `end N` on standard input, this "
      "program\n"
      "prints which jobs start now, and on which CPUs.\n\n"
      "example: meshmark-place mix --jobs jobs.json --policy pack",
      "meshmark-place mix"};
  app.add("--topology", topology, "host, a synthetic description, or an XML file of hwloc").show_default();
  app.add("--policy", policy, "policy with modifiers, as in meshmark place").show_default();
  app.add("--jobs", jobs_file, "JSON file: [[submit_s, run_s, slots, bytes_per_s], …]").of_file().required();
  app.add("--slots", kind, "unit of allocation: procs (sockets), cores, threads").show_default();
  app.add("--matrix", matrix, "JSON file with measured distances between nodes, instead of the firmware's");
  app.add("--within", within, "use only these CPUs [all allowed CPUs]");
  app.add("--discipline", discipline, "fcfs, or first-fit: a waiting job may overtake others that do not fit")
      .one_of({"fcfs", "first-fit"});
  app.add("--max-slots", max_slots, "slots of all running jobs together; machine: all of them; 0: no limit")
      .show_default();
  app.add("--node-bandwidth", settings.node_bytes_per_s, "memory bandwidth of each node in B/s; 0: no limit")
      .from(0.0, 1e18);
  app.add("--core-yield", settings.core_yield, "work of a core with several busy threads, relative to one thread")
      .from(1.0, 8.0);
  app.flag("--live", is_live, "decide for jobs that really run");
  if (!app.read(argc, argv, "")) return 0;
  parse_bind(policy, settings.request);
  if (settings.request.policy == "list" || settings.request.policy == "sharing")
    throw UsageError("bind", "found " + quote(settings.request.policy) + ", which applies to one job",
                     "balance, pack, any, none, compact, scatter");
  settings.request.kind = parse_slot_kind("--slots", kind);
  settings.request.prove = false;
  if (discipline == "first-fit") settings.discipline = Discipline::first_fit;
  Machine machine = machine_of(topology);
  if (!matrix.empty()) use_matrix(machine, matrix);
  if (!within.empty()) settings.request.within = parse_cpu_list("--within", within, machine.allowed);
  const std::vector<int>& allowed = within.empty() ? machine.allowed : settings.request.within;
  const std::size_t slots = slots_of(machine, settings.request.kind, allowed).size();
  const long long limit =
      max_slots == "machine" ? static_cast<long long>(slots) : parse_integer("--max-slots", max_slots);
  if (limit < 0 || limit > 1 << 30) throw UsageError("--max-slots", "found " + quote(max_slots), "machine, 0 or more");
  if (limit > 0) settings.max_slots = static_cast<int>(limit);

  const std::vector<MixJob> jobs = read_jobs(jobs_file);
  if (is_live)
    decide(machine, settings, jobs, std::cin, std::cout);
  else
    std::cout << to_line(simulated(machine, settings, jobs, slots)) << "\n" << std::flush;
  return 0;
}

}  // namespace mm::place::mix
