#pragma once
/// Internals of Run, for its implementation and native/program.
#include <map>
#include <string>
#include <vector>

#include "base/harness/instrument.hpp"
#include "base/resources/host.hpp"
#include "base/resources/shield.hpp"

namespace mm {

struct Run::State {
  const Description* description = nullptr;
  std::map<std::string, std::string> values;  ///< by parameter name, as text
  std::map<std::string, bool> was_given;
  std::vector<Parameter> parameters;  ///< the instrument's specific parameters and the common ones
  std::string machine, command;
  double started_s = 0, budget_end_s = 0;
  double worst_overhead = 0;  ///< largest share of clock reads in the time of a sample
  std::size_t points = 0, resumed = 0, absences = 0, results = 0, next_index = 0;
  double last_beat_s = 0;
  RealTimeShare real_time;
  bool header_written = false;
  bool sampled = false;      ///< a point was sampled, or the attempt failed
  json processes = nullptr;  ///< processes of a run with many ranks

  /// Content of an earlier output: samples by point, and finished points.
  struct Earlier {
    std::map<std::size_t, std::vector<std::pair<Values, int>>> samples;  ///< values and sample marks
    std::map<std::size_t, bool> finished;
    std::map<std::size_t, std::vector<std::string>> flags;  ///< flags of the results, by point
    json parameters;
    bool any = false;
  } earlier;

  std::map<std::vector<int>, std::shared_ptr<Team>> teams;
  std::map<int, double> best_reference_s;  ///< by CPU: best time of the reference loop, its undisturbed speed

  const Parameter& parameter(std::string_view name) const;
  const std::string& value(std::string_view name) const;
  void load_earlier(const std::string& path);
  json parameters_json() const;
  void write_header(std::size_t points);
  json provenance(const std::string& start, double duration_s) const;
  /// Returns a result line for samples in the metric's unit. Throws std::logic_error for a metric that is not
  /// described.
  json result(const std::string& metric, const std::vector<double>& samples, json conditions,
              const std::vector<std::string>& flags, json provenance) const;
  json identity(const json& conditions) const;  ///< the conditions that identify a point
};

/// Returns the parameters that every instrument has.
std::vector<Parameter> common_parameters(const Description& description);
std::string option_of(const Parameter& parameter);
const char* better_name(Better better);  ///< in descriptions and records: lower, higher, none
json describe(const Description& description);
json describe(const std::vector<Metric>& metrics);

}  // namespace mm
