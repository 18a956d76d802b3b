/// ep: pairs of normal deviates, counted by size; the only communication is a reduction at the end.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "apps/npb/npb.hpp"

namespace mm::mpi::npb {
namespace {

struct RandomPairsClass {
  const char* name;
  int log_pairs;
  double sum_x, sum_y;  ///< from the report
};
constexpr RandomPairsClass kClasses[] = {{"S", 24, -3.247834652034740e3, -6.958407078382297e3},
                                         {"W", 25, -2.863319731645753e3, -6.320053679109499e3},
                                         {"A", 28, -4.295875165629892e3, -1.580732573678431e4},
                                         {"B", 30, 4.033815542441498e4, -2.660669192809235e4},
                                         {"C", 32, 4.764367927995374e4, -8.084072988043731e4}};
constexpr std::uint64_t kSeedOfPairs = 271828183;
constexpr std::size_t kBlock = 1 << 16;  // pairs per jump of the random generator
constexpr double kTolerance = 1e-8;

class Pairs final : public NpbKernel {
 public:
  explicit Pairs(const RandomPairsClass& problem) : problem_(problem) {}

  void solve() override {
    const std::size_t blocks = (std::size_t{1} << problem_.log_pairs) / kBlock;
    const auto ranks = static_cast<std::size_t>(ranks_), rank = static_cast<std::size_t>(rank_);
    const std::size_t begin = part(blocks, ranks, rank), end = part(blocks, ranks, rank + 1);
    std::vector<Sums> by_thread(threads());
    in_parts(end - begin, [&](std::size_t first, std::size_t last) {
      Sums sums{};
      std::vector<double> numbers(2 * kChunk);
      for (std::size_t b = begin + first; b < begin + last; ++b) {
        Random random(kSeedOfPairs, 2 * kBlock * b);
        for (std::size_t generated = 0; generated < kBlock; generated += kChunk) {
          for (double& number : numbers) number = 2 * random.next() - 1;
          count(numbers, sums);
        }
      }
      by_thread[this_thread()] = sums;
    });
    sums_.fill(0);
    for (const Sums& thread_sums : by_thread)
      for (std::size_t i = 0; i < thread_sums.size(); ++i) sums_[i] += thread_sums[i];
    sum(sums_.data(), static_cast<int>(sums_.size()), all_);
  }

  std::string verify() override {
    const std::string x = differs("sum of x", problem_.sum_x, sums_[0], kTolerance);
    return x.empty() ? differs("sum of y", problem_.sum_y, sums_[1], kTolerance) : x;
  }
  json observed() const override {
    return {{"sum_x", sums_[0]},
            {"sum_y", sums_[1]},
            {"deviates", static_cast<long long>(std::accumulate(sums_.begin() + 2, sums_.end(), 0.0))}};
  }

 private:
  static constexpr std::size_t kChunk = 1024;
  using Sums = std::array<double, 12>;  // sums of x and of y, and the counts per square ring

  /// Adds deviates by Marsaglia's polar method.
  static void count(const std::vector<double>& numbers, Sums& sums) {
    double x = 0, y = 0;
    for (std::size_t i = 0; i < numbers.size(); i += 2) {
      const double u = numbers[i], v = numbers[i + 1];
      const double t = u * u + v * v;
      if (t > 1) continue;
      const double factor = std::sqrt(-2 * std::log(t) / t);
      const double dx = u * factor, dy = v * factor;
      x += dx;
      y += dy;
      ++sums[2 + static_cast<std::size_t>(std::max(std::fabs(dx), std::fabs(dy)))];
    }
    sums[0] += x;
    sums[1] += y;
  }

  const RandomPairsClass& problem_;
  Sums sums_{};
};

}  // namespace

std::vector<Problem> ep_problems() {
  std::vector<Problem> problems;
  for (const RandomPairsClass& c : kClasses) {
    const double pairs = std::ldexp(1.0, c.log_pairs);
    problems.push_back({.kernel = "ep",
                        .class_name = c.name,
                        .size = "2^" + std::to_string(c.log_pairs) + " pairs",
                        .operations = 2 * pairs,
                        .bytes = 0,
                        .max_ranks = static_cast<int>(std::ldexp(1.0, c.log_pairs - 16)),
                        .make = [&c](bool) { return std::make_shared<Pairs>(c); }});
  }
  return problems;
}

}  // namespace mm::mpi::npb
