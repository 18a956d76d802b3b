#pragma once
/// The one loop that measures: rounds over points, a burst a visit, with everything that could spoil it watched.
///
/// Rounds, because noise comes in stretches: a point whose samples all fall into one bad second would look
/// precise and be wrong. Visited in turn, every point covers every stretch, and the shape of a curve does not
/// depend on when its parts were measured.
#include <string>
#include <vector>

#include "conditions.hpp"
#include "instrument.hpp"
#include "run_state.hpp"

namespace mm {

class Rounds {
 public:
  /// Numbers the points, takes over their samples of an earlier output, and writes the header.
  Rounds(Run& run, Run::State& state, std::vector<Point> points);
  /// Visits the points in turn until each has samples enough, has failed, or the budget ends.
  void run();
  std::vector<Outcome> outcomes() const;

 private:
  struct Sample {
    Values values;
    int marks = 0;
    double reference_ratio = 1;  ///< the slower one of before and after the burst
    double burst_s = 0;
    double real_time_s = 0;  ///< how long the team ran at real-time priority; 0: it did not
  };

  Progress begin(Point point);
  void step(Progress& p);
  void visit(Progress& p);
  Sample take_sample(const Progress& p);
  double reference_ratio(Team& team);
  bool narrow(const Progress& p) const;
  void fail(Progress& p, const Absent& why);
  void finish(Progress& p);

  Run& run_;
  Run::State& state_;
  const double percent_;  ///< width of the interval asked for
  const std::string shield_;
  const std::vector<int> cpus_;
  const double begun_s_;
  /// A point may be finished in a few milliseconds, and a machine is rarely quiet or busy for so short a time: the
  /// samples of every point span at least this long.
  const double min_span_s_;
  std::vector<Progress> points_;
  StolenTime stolen_;
};

}  // namespace mm
