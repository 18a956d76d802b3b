#pragma once
/// Utilisation of memory controllers and links: their counted traffic as a share of their bandwidth.
#include <string>
#include <utility>
#include <vector>

#include "watch/board.hpp"
#include "watch/source.hpp"

namespace mm::watch {

/// The metric CLASS.busy of one class. 100 % is the sustained bandwidth from a survey at the current mix of reads and
/// writes, or else the theoretical peak.
class Utilisation {
 public:
  /// Adds the metric, or records its absence. `moved`: metrics of the class in B/s, reads first.
  Utilisation(Board& board, const Host& host, const std::string& klass, const std::vector<std::string>& moved);
  /// Returns an entry for the header (docs/reference/frames.md): the value and the source of 100 %; null without the
  /// metric.
  const json& denominator() const { return denominator_; }
  void sample(Board& board) const;

 private:
  using Mix = std::vector<std::pair<double, double>>;  ///< share of reads, B/s; by ascending share

  bool read_survey(const Board& board, const Host& host, const std::string& klass);
  void describe(const Board& board, const Host& host, const std::string& klass, bool surveyed);
  static double at_mix(const Mix& mix, double read_share);

  std::size_t share_ = kNone;  ///< the metric; kNone: absent, or supplied by the hardware
  std::size_t peak_ = kNone;   ///< metric of the theoretical peak, if a clock is counted
  std::vector<std::size_t> moved_;
  std::vector<Mix> sustained_;          ///< by component
  double peak_by_firmware_ = kUnknown;  ///< peak of a component in B/s, if its clock is not counted
  json denominator_ = nullptr;
};

/// Records the absence of memory.busy and link.busy, with the reasons.
void explain_unknown_use(const Host& host, Board& board);

}  // namespace mm::watch
