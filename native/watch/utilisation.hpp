#pragma once
/// How busy memory controllers and links are: what their counters moved, as a share of what they can carry.
#include <string>
#include <utility>
#include <vector>

#include "board.hpp"
#include "source.hpp"

namespace mm::watch {

/// The metric CLASS.busy of one class. 100 % is the bandwidth that a survey sustained at the present mix of reads and
/// writes, or else the theoretical peak.
class Utilisation {
 public:
  /// Adds the metric, or states why it is absent. `moved`: metrics of the class in B/s, reads first.
  Utilisation(Board& board, const Host& host, const std::string& klass, const std::vector<std::string>& moved);
  /// For the header (docs/reference/frames.md): what 100 % is, and where that comes from; null without the metric.
  const json& denominator() const { return denominator_; }
  void sample(Board& board) const;

 private:
  using Mix = std::vector<std::pair<double, double>>;  ///< share of reads, B/s; by ascending share

  bool read_survey(const Board& board, const Host& host, const std::string& klass);
  void describe(const Board& board, const Host& host, const std::string& klass, bool surveyed);
  static double at_mix(const Mix& mix, double read_share);

  std::size_t share_ = kNone;  ///< metric that is set; kNone: absent, or set from hardware
  std::size_t peak_ = kNone;   ///< metric of the theoretical peak, where a clock is counted
  std::vector<std::size_t> moved_;
  std::vector<Mix> sustained_;          ///< by component
  double peak_by_firmware_ = kUnknown;  ///< B/s of a component, where no clock of it is counted
  json denominator_ = nullptr;
};

/// States why memory.busy and link.busy are absent where nothing else has.
void explain_unknown_use(const Host& host, Board& board);

}  // namespace mm::watch
