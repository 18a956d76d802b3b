#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "place/search/bounds.hpp"
#include "place/search/choice.hpp"
#include "place/search/shapes/rows.hpp"
#include "place/search/shapes/torus.hpp"

namespace mm::place::search {

namespace {

constexpr double kProgrammeWork = 1.6e8;  // multiplications, about a tenth of a second

/// The linear programme, in its dual form. For a set S of k units, let s(x) be the share of its units whose partner at
/// difference x is in S too, averaged over each kind of x. With v(i) differences of kind i (other units of the same
/// cell have kind 0), twice the cost is k Σ v(i) s(i) d(i), and
///   Σ v s = k - 1;   1 + Σ P(χ, i) s(i) ≥ 0 for every character χ of the torus, P its sum over kind i;
///   s(a) + s(b) - s(c) ≤ 1 wherever a difference of kind a and one of b make one of c;   s ≤ 1.
/// Multipliers t, y, w ≥ 0 prove that Σ v s d ≥ t (k - 1) - Σ y - Σ w - Σ max(0, excess of their sum over v d).
class Programme {
 public:
  Programme(const Torus& torus, int each, int count, double work)
      : rows_(torus.times.size()), work_(work), count_(count), v_(torus.times), d_(torus.distance) {
    for (double& v : v_) v *= each;
    v_[0] = each - 1;
    scale_ = *std::max_element(d_.begin(), d_.end());
    if (scale_ <= 0) return;
    for (double& d : d_) d /= scale_;
    characters(torus, each);
    triangles(torus, each);
    climb();
  }
  /// Returns the bound for the sum over all pairs.
  double bound() const {
    if (scale_ <= 0) return 0;
    std::vector<double> excess(rows_), size(rows_);
    for (std::size_t i = 0; i < rows_; ++i) excess[i] = v_[i] * (t_ - d_[i]), size[i] = v_[i] * (t_ + d_[i]);
    double sum = t_ * (count_ - 1), all = sum;
    for (std::size_t c = 0; c < rows_; ++c) {
      sum -= y_[c], all += y_[c];
      if (y_[c] > 0)
        for (std::size_t i = 0; i < rows_; ++i) excess[i] += y_[c] * p_[c * rows_ + i], size[i] += y_[c] * v_[i];
    }
    for (std::size_t c = 0; c < cuts_.size(); ++c) {
      const double w = w_[c];
      if (w <= 0) continue;
      sum -= w, all += w;
      const auto& [x, y, z] = cuts_[c];
      excess[x] -= w, excess[y] -= w, excess[z] += w;
      size[x] += w, size[y] += w, size[z] += w;
    }
    for (std::size_t i = 0; i < rows_; ++i) sum -= std::max(0.0, excess[i]), all += size[i];
    return (sum - 1e-11 * all) / 2 * count_ * scale_;
  }

 private:
  struct Cut {
    std::size_t a, b, c;
  };

  void characters(const Torus& torus, int each) {
    const auto& lengths = torus.lengths;
    std::vector<std::vector<double>> cosines;
    for (const std::size_t length : lengths) {
      cosines.emplace_back(length);
      for (std::size_t x = 0; x < length; ++x)
        cosines.back()[x] = std::cos(2 * std::numbers::pi * static_cast<double>(x) / static_cast<double>(length));
    }
    p_.assign(rows_ * rows_, 0);
    std::vector<double> value;
    for (std::size_t c = 0; c < rows_; ++c) {
      // Kinds ignore signs, so the product of the cosines has the same sum as the exponentials.
      const auto chi = digits(torus.first[c], lengths);
      value.assign(1, 1);
      for (std::size_t d = 0; d < lengths.size(); ++d) {
        std::vector<double> next;
        next.reserve(value.size() * lengths[d]);
        for (const double v : value)
          for (std::size_t x = 0; x < lengths[d]; ++x) next.push_back(v * cosines[d][chi[d] * x % lengths[d]]);
        value = std::move(next);
      }
      for (std::size_t cell = 1; cell < value.size(); ++cell) p_[c * rows_ + torus.of[cell]] += each * value[cell];
      p_[c * rows_] = each - 1;
    }
  }
  /// Collects the pairs in which one difference is short, in order of its hops, up to a fixed number.
  void triangles(const Torus& torus, int each) {
    const auto& lengths = torus.lengths;
    const std::size_t cells = torus.of.size();
    std::vector<std::pair<std::size_t, std::size_t>> order;  // (hops, cell)
    std::vector<std::vector<std::size_t>> positions;
    for (std::size_t cell = 0; cell < cells; ++cell) {
      positions.push_back(digits(cell, lengths));
      std::size_t hops = 0;
      for (std::size_t d = 0; d < lengths.size(); ++d)
        hops += std::min(positions[cell][d], lengths[d] - positions[cell][d]);
      if (cell > 0) order.emplace_back(hops, cell);
    }
    std::sort(order.begin(), order.end());
    std::unordered_set<std::uint64_t> cut_keys;
    std::vector<std::size_t> to(lengths.size());
    std::size_t pairs = 0;
    for (const auto& [hops, y] : order) {
      pairs += cells;
      if (hops > 4 || pairs > 100000) break;
      for (std::size_t x = 1; x < cells; ++x) {
        for (std::size_t d = 0; d < lengths.size(); ++d) {
          to[d] = positions[x][d] + positions[y][d];
          if (to[d] >= lengths[d]) to[d] -= lengths[d];
        }
        const std::size_t z = number(to, lengths);
        if (z == 0 && each == 1) continue;
        const std::size_t a = std::min(torus.of[x], torus.of[y]), b = std::max(torus.of[x], torus.of[y]),
                          c = torus.of[z];
        if (c == a || c == b) continue;
        if (cut_keys.insert((static_cast<std::uint64_t>(a) * rows_ + b) * rows_ + c).second) cuts_.push_back({a, b, c});
      }
    }
  }

  /// Primal simplex on the dual, for which the slacks alone are feasible. Rows are kinds (divided by v), columns t, the
  /// characters, the triangles, s ≤ 1 and the slacks. The inverse of the basis is stored in full.
  void climb() {
    y_.assign(rows_, 0);
    w_.assign(cuts_.size(), 0);
    t_ = 0;
    // Without a second unit per cell, the row of kind 0 is empty.
    const std::size_t skip = v_[0] > 0 ? 0 : 1, m = rows_ - skip;
    const std::size_t cut = 1 + rows_, upper = cut + cuts_.size(), slack = upper + m, columns = slack + m;
    std::vector<double> inverse(m * m, 0), x(m), price(m, 0), column(m), entering(m), norm(columns, 1);
    std::vector<std::size_t> basis(m);
    for (std::size_t i = 0; i < m; ++i) {
      inverse[i * m + i] = 1;
      basis[i] = slack + i;
      // Ties could stall it: lower each right-hand side slightly, by a fixed pattern.
      x[i] = d_[i + skip] * (1 - 1e-5 * std::fmod(0.618034 * static_cast<double>(i), 1));
    }
    std::vector<double> share(rows_ * m);  // characters over v
    for (std::size_t c = 0; c < rows_; ++c) {
      double square = 0;
      for (std::size_t i = 0; i < m; ++i) {
        share[c * m + i] = p_[c * rows_ + i + skip] / v_[i + skip];
        square += share[c * m + i] * share[c * m + i];
      }
      norm[1 + c] = std::sqrt(1 + square);
    }
    norm[0] = std::sqrt(1 + static_cast<double>(m));
    const auto times = [&](std::size_t kind) { return 1 / v_[kind]; };
    for (std::size_t c = 0; c < cuts_.size(); ++c) {
      double square = 1;
      for (const std::size_t k : {cuts_[c].a, cuts_[c].b, cuts_[c].c}) square += times(k) * times(k);
      norm[cut + c] = std::sqrt(square);
    }
    std::vector<bool> in_basis(columns, false);
    const auto row_of = [&](std::size_t kind) { return kind - skip; };
    while (work_ > 0) {
      work_ -= 3 * static_cast<double>(m * m) + 4 * static_cast<double>(cuts_.size());
      std::size_t best = columns;
      double steepest = 1e-9, gain = 0;
      const auto consider = [&](std::size_t j, double reduced) {
        if (reduced > steepest * norm[j] && !in_basis[j]) steepest = reduced / norm[j], best = j, gain = reduced;
      };
      consider(0, count_ - 1 - std::accumulate(price.begin(), price.end(), 0.0));
      for (std::size_t c = 0; c < rows_; ++c) consider(1 + c, -1 - dot(price.data(), &share[c * m], m));
      for (std::size_t c = 0; c < cuts_.size(); ++c) {
        const auto& [a, b, z] = cuts_[c];
        consider(cut + c, -1 + price[row_of(a)] * times(a) + price[row_of(b)] * times(b) - price[row_of(z)] * times(z));
      }
      for (std::size_t i = 0; i < m; ++i) {
        consider(upper + i, -1 + price[i] * times(i + skip));
        consider(slack + i, -price[i]);
      }
      if (best == columns) break;
      // The entering column in terms of the basis.
      const auto sparse = [&](std::size_t i, double value) {
        for (std::size_t r = 0; r < m; ++r) entering[r] += value * inverse[r * m + i];
      };
      std::fill(entering.begin(), entering.end(), 0.0);
      if (best < cut) {
        const double* coefficients = best == 0 ? nullptr : &share[(best - 1) * m];
        for (std::size_t r = 0; r < m; ++r)
          entering[r] = coefficients == nullptr ? std::accumulate(&inverse[r * m], &inverse[r * m] + m, 0.0)
                                                : dot(coefficients, &inverse[r * m], m);
      } else if (best < upper) {
        const auto& [a, b, z] = cuts_[best - cut];
        sparse(row_of(a), -times(a)), sparse(row_of(b), -times(b)), sparse(row_of(z), times(z));
      } else if (best < slack) {
        sparse(best - upper, -times(best - upper + skip));
      } else {
        sparse(best - slack, 1);
      }
      std::size_t leaving = m;
      for (std::size_t r = 0; r < m; ++r) {
        if (entering[r] < 1e-9) continue;
        if (leaving == m || x[r] * entering[leaving] < x[leaving] * entering[r]) leaving = r;
      }
      if (leaving == m) break;  // only possible through rounding
      const double pivot = entering[leaving], length = std::max(0.0, x[leaving]) / pivot;
      double* row = &inverse[leaving * m];
      for (std::size_t i = 0; i < m; ++i) {
        row[i] /= pivot;
        price[i] += gain * row[i];
      }
      for (std::size_t r = 0; r < m; ++r) {
        if (r == leaving || entering[r] == 0) continue;
        x[r] -= length * entering[r];
        add(&inverse[r * m], -entering[r], row, m);
      }
      x[leaving] = length;
      in_basis[basis[leaving]] = false, in_basis[best] = true;
      basis[leaving] = best;
    }
    for (std::size_t r = 0; r < m; ++r) {
      const double value = std::max(0.0, x[r]);
      if (basis[r] == 0)
        t_ = value;
      else if (basis[r] < cut)
        y_[basis[r] - 1] = value;
      else if (basis[r] < upper)
        w_[basis[r] - cut] = value;
    }
  }

  std::size_t rows_;
  double work_, scale_ = 0;
  int count_;
  std::vector<double> v_, d_, p_;  // p_: [character][kind]
  std::vector<Cut> cuts_;
  double t_ = 0;
  std::vector<double> y_, w_;
};

}  // namespace

}  // namespace mm::place::search

namespace mm::place {

using search::kNever;
using search::kProgrammeWork;
using search::measure;
using search::Programme;
using search::Torus;
using search::torus_of;
using search::Value;

CellWeights cells_of(const ClusterProblem& p, std::size_t cells) {
  std::vector<std::vector<Value>> weight(cells, std::vector<Value>(cells, kNever));
  std::vector<int> capacity(cells, 0);
  for (std::size_t a = 0; a < p.cell.size(); ++a) {
    const auto u = static_cast<std::size_t>(p.cell[a]);
    capacity[u] += p.capacity[a];
    for (std::size_t b = 0; b < p.cell.size(); ++b) {
      Value& entry = weight[u][static_cast<std::size_t>(p.cell[b])];
      if (a != b || p.capacity[a] > 1) entry = std::min(entry, p.weight[a][b]);
    }
  }
  return {std::move(weight), std::move(capacity)};
}

std::int64_t translation_bound(const ClusterProblem& p) {
  const auto cells = static_cast<std::size_t>(1 + *std::max_element(p.cell.begin(), p.cell.end()));
  if (p.count < 2 || cells < 4 || cells > 2048) return 0;
  if (20 * static_cast<double>(cells * cells) > kProgrammeWork * p.effort) return 0;
  const auto [weight, capacity] = cells_of(p, cells);
  double total = 0;
  for (std::size_t u = 0; u < cells; ++u)
    for (std::size_t v = 0; v < u; ++v) {
      if (weight[u][v] == kNever) return 0;  // a position without any class
      total += 2 * static_cast<double>(weight[u][v]);
    }
  std::vector<std::vector<std::size_t>> shapes;
  for (std::size_t a = 1; a <= cells; ++a) {
    if (cells % a != 0) continue;
    if (a == 1 || a < cells) shapes.push_back({a, cells / a});
    for (std::size_t b = 2; a > 1 && b < cells / a; ++b)
      if (cells / a % b == 0) shapes.push_back({a, b, cells / a / b});
    std::size_t dimensions = 0, left = cells;
    for (; a > 1 && left % a == 0; left /= a) ++dimensions;
    if (left == 1 && dimensions > 3) shapes.emplace_back(dimensions, a);
  }
  const int units_per_cell = *std::max_element(capacity.begin(), capacity.end());
  // A mesh is part of a torus of nearly twice its lengths, or less if all differences in compact sets are short.
  const auto padded = [&](const std::vector<std::size_t>& lengths, double sides) {
    const double side =
        std::pow(static_cast<double>(p.count) / units_per_cell, 1 / static_cast<double>(lengths.size()));
    const auto wide = static_cast<std::size_t>(std::ceil(std::min(sides * side, 4096.0)));
    std::vector<std::size_t> result;
    for (const std::size_t l : lengths) result.push_back(std::clamp(wide, l, 2 * l - 1));
    return result;
  };
  struct TorusFit {
    double sum = 0;
    std::vector<std::size_t> lengths = {};
  } ring, path;
  for (const auto& lengths : shapes)
    for (TorusFit* fit : {&ring, &path}) {
      Torus torus = fit == &ring ? torus_of(lengths, true) : torus_of(padded(lengths, 1e9), false);
      if (fit == &ring && torus.times.size() > 700) continue;  // the programme would not finish
      measure(torus, lengths, weight, 1 + cells / 24);
      if (torus.sum > 1.0001 * fit->sum) *fit = {torus.sum, lengths};
    }
  // Differences in a mesh are more specific than those in a torus of all cells, so they must yield much more.
  const bool mesh = path.sum > 1.04 * ring.sum;
  const auto& best = mesh ? path.lengths : ring.lengths;
  if (best.empty()) return 0;
  Torus torus = torus_of(best, true);
  if (mesh) torus = torus_of(padded(best, 2.7), true);
  for (double sides = 2.6; mesh && torus.times.size() > 280 && sides > 1.6; sides -= 0.1)
    torus = torus_of(padded(best, sides), true);
  if (torus.times.size() > 700) return 0;
  measure(torus, best, weight, 1);
  // If differences determine the distances poorly, the bound would be weak.
  if (torus.sum < 0.7 * total) return 0;
  if (Torus unfolded = torus_of(torus.lengths, false);
      unfolded.times.size() > torus.times.size() && unfolded.times.size() <= 300) {
    measure(unfolded, best, weight, 1);
    if (unfolded.sum > 1.005 * torus.sum) torus = std::move(unfolded);
  }
  const double bound = Programme(torus, units_per_cell, p.count, kProgrammeWork * p.effort).bound();
  return bound > 0 ? static_cast<Value>(std::floor(bound * (1 - 1e-12))) : 0;
}

}  // namespace mm::place
