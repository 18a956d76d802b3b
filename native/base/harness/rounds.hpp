#pragma once
/// The measurement loop: rounds over points, with one burst per visit, and checks for disturbances.
///
/// Noise comes in phases: a point whose samples all fall into one bad second would look precise and be wrong. With
/// rounds, the samples of every point cover all phases, and the shape of a curve does not depend on when its parts were
/// measured.
#include <string>
#include <vector>

#include "base/harness/conditions.hpp"
#include "base/harness/instrument.hpp"
#include "base/harness/run_state.hpp"

namespace mm {

class Rounds {
 public:
  /// Numbers the points, takes over their samples from an earlier output, and writes the header.
  Rounds(Run& run, Run::State& state, std::vector<Point> points);
  /// Visits the points in turn until each has converged, has failed, or the budget ends.
  void run();
  std::vector<Outcome> outcomes() const;

 private:
  struct Sample {
    Values values;
    int marks = 0;
    double clock_ratio = 1;  ///< the smaller reference_ratio() of the runs before and after the burst
    double burst_s = 0;
    double real_time_s = 0;  ///< time of the team at real-time priority; 0 if it had none
  };

  PointProgress begin(Point point);
  void step(PointProgress& p);
  void visit(PointProgress& p);
  Sample take_sample(const PointProgress& p);
  double reference_ratio(Team& team);
  bool narrow(const PointProgress& p) const;
  void fail(PointProgress& p, const Absent& error);
  void finish(PointProgress& p);

  Run& run_;
  Run::State& state_;
  const double percent_;  ///< requested half width of the interval
  const std::string shield_;
  const std::vector<int> cpus_;
  const double begun_s_;
  /// The samples of every point span at least this time. A point may take only milliseconds, which is shorter than the
  /// typical quiet and busy phases of a machine.
  const double min_span_s_;
  std::vector<PointProgress> points_;
  OtherUse other_;
};

}  // namespace mm
