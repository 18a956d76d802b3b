#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "place/search/bounds.hpp"
#include "place/search/choice.hpp"
#include "place/search/shapes/square.hpp"

namespace mm::place::search {

namespace {

constexpr double kSpectrumWork = 9e8;  // multiplications

/// Lower bound by the spectrum. For single units, x their 0/1 choice, k = count, any D ≤ W off the diagonal and any u:
/// with M = D + diag(u), row sums m and x = k/n + y, twice the cost is at least
///   x'Dx = - k²/n² Σm + (2k/n · m - u)'x + y'My,
/// where the second term is at least the sum of the k smallest, and the third (k - k²/n) λ, with λ the smallest
/// eigenvalue of M orthogonal to the vector of ones. The maximum over D and u is the semidefinite relaxation with X ≥ 0
/// (Poljak, Rendl, Wolkowicz 1995). D starts as W with a cap; D and u then follow a gradient that is smoothed over the
/// lower end of the spectrum (Nesterov 2007), here by a power of the matrix. λ is estimated in each step (Lanczos 1950)
/// and proven once.
class Spectrum {
 public:
  Spectrum(const ClusterProblem& p, double work) : work_(work), k_(p.count) {
    for (std::size_t c = 0; c < p.capacity.size(); ++c)
      of_.insert(of_.end(), static_cast<std::size_t>(p.capacity[c]), c);
    n_ = of_.size();
    for (const std::size_t a : of_)
      for (const std::size_t b : of_) scale_ = std::max(scale_, static_cast<double>(p.weight[a][b]));
    w_.assign(n_ * n_, 0);
    for (std::size_t i = 0; i < n_; ++i)
      for (std::size_t j = 0; j < n_; ++j)
        if (i != j) w_[i * n_ + j] = static_cast<double>(p.weight[of_[i]][of_[j]]) / scale_;
  }
  Value run(Value enough) {
    const double n = static_cast<double>(n_), k = k_;
    spread_ = k - k * k / n;
    // Lanczos and one proof must fit in the limit.
    if (k_ < 2 || k_ >= static_cast<int>(n_)) return 0;
    work_ -= n * n * n / 2 + 100 * n * n;
    if (work_ < 0) return 0;
    Point point;
    point.d = {n_, w_};
    point.u.assign(n_, 0);
    const double height = cut();
    for (double& d : point.d.of) d = std::min(d, height);
    evaluate(point);
    double stride = 4;  // first step, relative to the spectrum's width; adapted, as are the powers
    int power = 3;
    const double aim = static_cast<double>(enough) / scale_ * 2 * 1.001;
    for (;;) {
      const double step = (power / 2.0 + 0.5) * n * n * n + 200 * n * n;
      work_ -= step;
      if (work_ < 0 || point.value > aim || stride < 0.002) break;
      Point best = point;
      const Square direction = gradient(point, power);
      double length = 0;
      for (const double share : {stride, stride / 2, stride / 4}) {
        Point next = point;
        move(next, direction, share * point.width / spread_);
        evaluate(next);
        if (next.value <= best.value) {
          if (length > 0) break;
          continue;
        }
        length = share;
        best = std::move(next);
      }
      if (length == 0) power = std::min(power + 1, 10);  // closer to the non-smooth function
      stride = length > 0 ? 1.5 * length : stride / 2;
      point = std::move(best);
    }
    double result = 0;
    for (const double margin : {1e-3, 1e-2, 5e-2})
      if (const double proven = prove(point, margin * point.width); proven > 0) {
        result = proven;
        break;
      }
    return result > 0 ? static_cast<Value>(std::floor(result / 2 * scale_ * (1 - 1e-12))) : 0;
  }

 private:
  struct Point {
    Square d = {};
    std::vector<double> u = {}, c = {};       // c: 2k/n · m - u
    double total = 0, lambda = 0, width = 0;  // Σm; the spectrum orthogonal to the ones, as estimated by Lanczos
    double value = 0;                         // value of the bound, if λ is `lambda`
    std::vector<double> low = {};             // its eigenvector
  };

  /// Returns the initial cap of W, as for a matrix without structure, whose spectrum is a semicircle (Füredi, Komlós
  /// 1981).
  double cut() const {
    std::vector<double> sorted;
    for (std::size_t i = 0; i < n_; ++i)
      for (std::size_t j = i % 4; j < i; j += 1 + n_ / 128) sorted.push_back(w_[i * n_ + j]);
    if (sorted.empty()) return 1;
    std::sort(sorted.begin(), sorted.end());
    const double n = static_cast<double>(n_), k = k_, count = static_cast<double>(sorted.size());
    double best = -1, height = sorted.back(), sum = 0, squares = 0;
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      const double above = count - static_cast<double>(i), h = sorted[i];
      const double mean = (sum + above * h) / count, square = (squares + above * h * h) / count;
      const double value = (k - 1) * mean - 2 * std::sqrt(n * std::max(0.0, square - mean * mean)) * spread_ / k;
      if (value > best) best = value, height = h;
      sum += h, squares += h * h;
    }
    return height;
  }
  double linear(const std::vector<double>& c) const {
    std::vector<double> sorted = c;
    std::nth_element(sorted.begin(), sorted.begin() + k_ - 1, sorted.end());
    return std::accumulate(sorted.begin(), sorted.begin() + k_, 0.0);
  }
  /// Computes everything that follows from d and u.
  void evaluate(Point& at) {
    const double n = static_cast<double>(n_), k = k_;
    at.total = 0;
    at.c.resize(n_);
    for (std::size_t i = 0; i < n_; ++i) {
      const double m = std::accumulate(at.d.row(i), at.d.row(i) + n_, at.u[i]);
      at.total += m;
      at.c[i] = 2 * k / n * m - at.u[i];
    }
    lanczos(at);
    at.value = -k * k / n / n * at.total + linear(at.c) + at.lambda * spread_;
  }
  void lanczos(Point& at) const {
    const std::size_t steps = std::min<std::size_t>(n_ - 1, 30);
    std::vector<std::vector<double>> basis;
    std::vector<double> diagonal, off, v(n_), next(n_);
    const auto center = [&](std::vector<double>& x) {
      const double mean = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(n_);
      for (double& value : x) value -= mean;
    };
    const auto norm = [&](const std::vector<double>& x) { return std::sqrt(dot(x.data(), x.data(), n_)); };
    for (std::size_t i = 0; i < n_; ++i)  // the last vector, and a little of all directions
      v[i] = (at.low.empty() ? 0 : at.low[i]) + 0.05 * (std::fmod(static_cast<double>(i * i + i) * 0.618034, 1) - 0.5);
    center(v);
    double length = norm(v);
    for (std::size_t s = 0; s < steps && length > 1e-12; ++s) {
      for (double& value : v) value /= length;
      std::fill(next.begin(), next.end(), 0.0);
      for (std::size_t i = 0; i < n_; ++i) add(next.data(), v[i], at.d.row(i), n_);
      for (std::size_t i = 0; i < n_; ++i) next[i] += at.u[i] * v[i];
      center(next);
      diagonal.push_back(dot(v.data(), next.data(), n_));
      basis.push_back(v);
      for (int twice = 0; twice < 2; ++twice)
        for (const auto& b : basis) add(next.data(), -dot(b.data(), next.data(), n_), b.data(), n_);
      length = norm(next);
      off.push_back(length);
      std::swap(v, next);
    }
    const std::size_t m = diagonal.size();
    at.lambda = at.width = 0;
    if (m == 0) return;
    // Ends of the tridiagonal matrix's spectrum, by Sturm's count of signs.
    double low = diagonal[0], high = diagonal[0];
    for (std::size_t s = 0; s < m; ++s) {
      const double radius = (s > 0 ? off[s - 1] : 0) + (s + 1 < m ? off[s] : 0);
      low = std::min(low, diagonal[s] - radius), high = std::max(high, diagonal[s] + radius);
    }
    const auto below = [&](double x) {
      std::size_t count = 0;
      double q = 1;
      for (std::size_t s = 0; s < m; ++s) {
        q = diagonal[s] - x - (s > 0 ? off[s - 1] * off[s - 1] / q : 0);
        if (q == 0) q = 1e-300;
        count += q < 0 ? 1 : 0;
      }
      return count;
    };
    const auto end = [&](std::size_t count) {
      double a = low, b = high;
      for (int halving = 0; halving < 50; ++halving) {
        const double middle = (a + b) / 2;
        (below(middle) >= count ? b : a) = middle;
      }
      return b;
    };
    at.lambda = end(1);
    at.width = std::max(1e-9, end(m) - at.lambda);
    // Its eigenvector, by the recurrence: a sufficient start for the next step.
    std::vector<double> y(m, 1);
    double size = 1;
    for (std::size_t s = 0; s + 1 < m && size < 1e100; ++s) {
      y[s + 1] = off[s] == 0 ? 0 : ((at.lambda - diagonal[s]) * y[s] - (s > 0 ? off[s - 1] * y[s - 1] : 0)) / off[s];
      size = std::max(size, std::abs(y[s + 1]));
    }
    at.low.assign(n_, 0);
    for (std::size_t s = 0; s < m; ++s)
      if (size < 1e100) add(at.low.data(), y[s], basis[s].data(), n_);
    if (const double low_norm = norm(at.low); low_norm > 0)
      for (double& value : at.low) value /= low_norm;
  }
  /// Projects M orthogonally to the ones: subtracts every row's mean, from both sides.
  Square crossed(const Point& at) const {
    Square result = at.d;
    std::vector<double> mean(n_);
    double all = 0;
    for (std::size_t i = 0; i < n_; ++i) {
      result.row(i)[i] += at.u[i];
      mean[i] = std::accumulate(result.row(i), result.row(i) + n_, 0.0) / static_cast<double>(n_);
      all += mean[i] / static_cast<double>(n_);
    }
    for (std::size_t i = 0; i < n_; ++i)
      for (std::size_t j = 0; j < n_; ++j) result.row(i)[j] += all - (mean[i] + mean[j]);
    return result;
  }
  /// Derivatives with respect to d, and on the diagonal to u, with the spectrum's lower end weighted by (1 -
  /// x)^(2^power).
  Square gradient(const Point& at, int power) const {
    const double n = static_cast<double>(n_), k = k_;
    Square x = crossed(at);
    const double top = at.lambda + 1.02 * at.width, unit = 1 / (top - at.lambda);
    for (std::size_t i = 0; i < n_; ++i)
      for (std::size_t j = 0; j < n_; ++j)
        x.row(i)[j] = unit * ((i == j ? top : 0) - x.row(i)[j] - top / n);  // the vector of ones maps to 0
    for (int s = 0; s < power; ++s) x = squared(x);
    double trace = 0;
    for (std::size_t i = 0; i < n_; ++i) trace += x.row(i)[i];
    const double mu = at.width / static_cast<double>(1 << power);
    double low = *std::min_element(at.c.begin(), at.c.end()) - 40 * mu,
           high = *std::max_element(at.c.begin(), at.c.end()) + 40 * mu;
    std::vector<double> soft(n_);
    for (int halving = 0; halving < 40; ++halving) {
      const double middle = (low + high) / 2;
      double sum = 0;
      for (std::size_t i = 0; i < n_; ++i) sum += soft[i] = 1 / (1 + std::exp((at.c[i] - middle) / mu));
      (sum < k ? low : high) = middle;
    }
    for (std::size_t i = 0; i < n_; ++i)
      for (std::size_t j = 0; j < n_; ++j) {
        const double both = i == j ? (2 * k / n - 1) * soft[i] : k / n * (soft[i] + soft[j]);
        x.row(i)[j] = -k * k / n / n + both + spread_ / trace * x.row(i)[j];
      }
    return x;
  }
  void move(Point& at, const Square& way, double length) const {
    for (std::size_t i = 0; i < n_; ++i) {
      at.u[i] += length * way.row(i)[i];
      double* row = at.d.row(i);
      for (std::size_t j = 0; j < n_; ++j)
        row[j] = i == j ? 0 : std::min(w_[i * n_ + j], row[j] + length * way.row(i)[j]);
    }
  }
  /// Returns the bound with λ reduced below its estimate until a factorization proves it; 0 if this fails.
  double prove(const Point& at, double margin) const {
    const double n = static_cast<double>(n_), k = k_, lambda = at.lambda - margin;
    Square a = crossed(at);
    double size = std::abs(lambda) + 1;
    for (const double value : a.of) size = std::max(size, std::abs(value));
    for (std::size_t i = 0; i < n_; ++i)
      for (std::size_t j = 0; j < n_; ++j) a.row(i)[j] += 1 - (i == j ? lambda : 0);  // the vector of ones: n
    if (!has_cholesky(a)) return 0;
    // Rounding errors of the matrix's entries, its factors, and the sums.
    const double eigenvalue = lambda - 1e-14 * n * n * size, part = linear(at.c);
    double sums = k * std::abs(at.total) / n;
    for (std::size_t i = 0; i < n_; ++i) sums = std::max(sums, k * (std::abs(at.c[i]) + std::abs(at.u[i])));
    return -k * k / n / n * at.total + part + eigenvalue * spread_ - 1e-14 * n * (sums + k * size);
  }

  double work_, scale_ = 1, spread_ = 0;
  int k_;
  std::size_t n_ = 0;
  std::vector<std::size_t> of_;
  std::vector<double> w_;
};

}  // namespace

}  // namespace mm::place::search

namespace mm::place {

std::int64_t spectral_bound(const ClusterProblem& problem, std::int64_t enough) {
  return search::Spectrum(problem, search::kSpectrumWork * problem.effort).run(enough);
}

}  // namespace mm::place
