#include "place/mix/live.hpp"

#include <istream>
#include <ostream>
#include <sstream>
#include <string>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/options/options.hpp"
#include "base/text.hpp"
#include "place/mix/queue.hpp"

namespace mm::place::mix {
namespace {

enum class JobState { unknown, waiting, running, gone };

json answer_of(const std::vector<Decision>& decisions, std::vector<JobState>& states) {
  json answer{{"start", json::array()}, {"refused", json::array()}};
  for (const Decision& decision : decisions) {
    json job{{"job", decision.job}};
    if (!decision.refused.empty()) {
      states[decision.job] = JobState::gone;
      job["why"] = decision.refused;
      answer["refused"].push_back(std::move(job));
      continue;
    }
    states[decision.job] = JobState::running;
    job["cpus"] = cpu_list(decision.placement.layout.cpus());
    if (decision.placement.oversubscribed) job["oversubscribed"] = true;
    answer["start"].push_back(std::move(job));
  }
  return answer;
}

}  // namespace

void decide(const Machine& machine, const Settings& settings, const std::vector<MixJob>& jobs, std::istream& in,
            std::ostream& out) {
  JobQueue queue(machine, settings, jobs);
  std::vector<JobState> states(jobs.size(), JobState::unknown);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string verb, rest;
    std::size_t job = jobs.size();
    const bool is_known = (words >> verb >> job) && !(words >> rest) && job < jobs.size();
    if (is_known && verb == "submit" && states[job] == JobState::unknown) {
      states[job] = JobState::waiting;
      queue.submit(job);
    } else if (is_known && verb == "end" && states[job] == JobState::running) {
      states[job] = JobState::gone;
      queue.finish(job);
    } else {
      throw Failure("found " + quote(line) + " on standard input", "submit N, or end N of a job that runs");
    }
    out << to_line(answer_of(queue.start(), states)) << "\n" << std::flush;
  }
}

}  // namespace mm::place::mix
