#pragma once
/// A table of the results of a survey, for a terminal.
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/topology/topology.hpp"

namespace mm::survey {

/// The result lines of a survey, without their samples.
class SurveyResults {
 public:
  /// Remembers the line of a step if it is a result, an absence or an error. `step` is the id of the step.
  void take(std::string_view step, std::string_view line);
  /// Remembers that a step did not end as it should.
  void problem(std::string_view step, std::string_view reason);
  bool empty() const { return results_.empty(); }
  /// Returns what could not be measured, and why.
  const std::vector<std::string>& problems() const { return problems_; }
  /// Returns the table, which ends with a newline.
  std::string summary(const Machine& machine) const;

 private:
  struct Result {
    std::string step, metric;
    double value = 0;
    std::vector<double> interval;  ///< low and high, in the unit of the value; empty: too few samples
    std::vector<std::string> flags;
    json conditions;
  };
  std::string levels() const;
  std::string bandwidths() const;
  std::string transfers(const Machine& machine) const;
  std::string nodes(const Machine& machine) const;
  std::string doubts() const;
  /// Returns the results of a step with this metric.
  std::vector<const Result*> results_of(std::string_view step, std::string_view metric) const;

  std::vector<Result> results_;
  std::vector<std::string> problems_;
};

/// Returns a number with four significant digits and a prefix, such as "118.0 ns" or "32 KiB". `unit` is s, B/s or B.
std::string with_unit(double value, std::string_view unit);

}  // namespace mm::survey
