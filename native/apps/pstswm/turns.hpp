#pragma once
/// The factors that Fourier transforms of a length need, and the number of their operations.
#include <cmath>
#include <numbers>
#include <vector>

namespace mm::pstswm {

/// The factors of all passes of a length.
class Turns {
 public:
  explicit Turns(int length) : length_(length) {
    for (int n = length; n >= 4; n /= 4)
      for (int p = 0; p < n / 4; ++p)
        for (int power = 1; power <= 3; ++power) {
          const double angle = 2 * std::numbers::pi * p * power / n;
          turn_.push_back(std::cos(angle));
          turn_.push_back(std::sin(angle));
        }
  }
  int length() const { return length_; }
  const double* data() const { return turn_.data(); }

 private:
  int length_;
  std::vector<double> turn_;
};

/// Returns the additions and multiplications of one row.
inline double fourier_flops(int length) {
  double sum = 0;
  int n = length;
  for (; n >= 4; n /= 4) sum += 34.0 * length / 4;
  return sum + (n == 2 ? 4.0 * length / 2 : 0);
}

}  // namespace mm::pstswm
