#include "bounds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <unordered_set>
#include <utility>

namespace mm::place {
namespace {

using Value = std::int64_t;
constexpr Value kNever = std::numeric_limits<Value>::max();
constexpr double kProgrammeWork = 1.6e8;  // multiplications, about a tenth of a second
constexpr double kSpectrumWork = 9e8;
constexpr double kTreeWork = 4e6;  // pairs of classes

Value pairs(Value n) { return n * (n - 1) / 2; }

void add(double* to, double factor, const double* from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

double dot(const double* a, const double* b, std::size_t n) {
  double sums[4] = {0, 0, 0, 0};  // in a fixed order, and yet several at once
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (std::size_t j = 0; j < 4; ++j) sums[j] += a[i + j] * b[i + j];
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  return sums[0] + sums[1] + (sums[2] + sums[3]);
}

// ------------------------------------------------------------------ trees

/// Joins of two branches, the nearest by mean distance first (average linkage, Sokal and Michener 1958, by chains of
/// nearest neighbours, Murtagh 1983). Branch number c < classes is a class, later ones are joins in their order.
std::vector<std::pair<std::size_t, std::size_t>> joins_of(const ClusterProblem& p) {
  std::vector<std::size_t> name, size;
  for (std::size_t c = 0; c < p.capacity.size(); ++c)
    if (p.capacity[c] > 0) name.push_back(c), size.push_back(static_cast<std::size_t>(p.capacity[c]));
  const std::size_t n = name.size();
  std::vector<double> apart(n * n);
  for (std::size_t a = 0; a < n; ++a)
    for (std::size_t b = 0; b < n; ++b) apart[a * n + b] = static_cast<double>(p.weight[name[a]][name[b]]);
  struct Join {
    double height;
    std::size_t a, b;  // one class of each side
  };
  std::vector<Join> found;
  std::vector<bool> gone(n, false);
  std::vector<std::size_t> chain;
  while (found.size() + 1 < n) {
    if (chain.empty())
      chain.push_back(static_cast<std::size_t>(std::find(gone.begin(), gone.end(), false) - gone.begin()));
    const std::size_t a = chain.back();
    std::size_t b = chain.size() > 1 ? chain[chain.size() - 2] : n;  // kept in a tie, or the chain would not end
    for (std::size_t c = 0; c < n; ++c)
      if (!gone[c] && c != a && (b == n || apart[a * n + c] < apart[a * n + b])) b = c;
    if (chain.size() < 2 || b != chain[chain.size() - 2]) {
      chain.push_back(b);
      continue;
    }
    chain.resize(chain.size() - 2);
    found.push_back({apart[a * n + b], a, b});
    const double x = static_cast<double>(size[a]), y = static_cast<double>(size[b]);
    for (std::size_t c = 0; c < n; ++c)
      apart[b * n + c] = apart[c * n + b] = (x * apart[a * n + c] + y * apart[b * n + c]) / (x + y);
    size[b] += size[a];
    gone[a] = true;
  }
  // A chain finds the joins out of order; a stable sort keeps every join behind those below it.
  std::stable_sort(found.begin(), found.end(), [](const Join& a, const Join& b) { return a.height < b.height; });
  std::vector<std::size_t> over(n), branch = name;
  std::iota(over.begin(), over.end(), std::size_t{0});
  const auto root = [&](std::size_t c) {
    while (over[c] != c) c = over[c] = over[over[c]];
    return c;
  };
  std::vector<std::pair<std::size_t, std::size_t>> joins;
  for (const Join& join : found) {
    const std::size_t a = root(join.a), b = root(join.b);
    joins.emplace_back(branch[a], branch[b]);
    over[a] = b;
    branch[b] = p.capacity.size() + joins.size() - 1;
  }
  return joins;
}

/// What units of two branches cost each other.
class Across {
 public:
  Across(const ClusterProblem& p, const std::vector<std::size_t>& from, const std::vector<std::size_t>& to,
         std::size_t most_from, std::size_t most_to)
      : width_(most_to + 1), least_((most_from + 1) * (most_to + 1), 0) {
    std::vector<std::vector<Value>> sums(from.size(), std::vector<Value>(width_, 0));
    std::vector<std::pair<Value, int>> row(to.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      for (std::size_t j = 0; j < to.size(); ++j) row[j] = {p.weight[from[i]][to[j]], p.capacity[to[j]]};
      std::sort(row.begin(), row.end());
      std::size_t t = 1;
      for (const auto& [weight, n] : row)
        for (int u = 0; u < n && t < width_; ++u, ++t) sums[i][t] = sums[i][t - 1] + weight;
    }
    std::vector<std::pair<Value, int>> column(from.size());
    for (std::size_t t = 1; t < width_; ++t) {
      for (std::size_t i = 0; i < from.size(); ++i) column[i] = {sums[i][t], p.capacity[from[i]]};
      std::sort(column.begin(), column.end());
      std::size_t s = 1;
      for (const auto& [sum, n] : column)
        for (int u = 0; u < n && s <= most_from; ++u, ++s) least_[s * width_ + t] = least_[(s - 1) * width_ + t] + sum;
    }
  }
  Value operator()(std::size_t s, std::size_t t) const { return least_[s * width_ + t]; }

 private:
  std::size_t width_;
  std::vector<Value> least_;  // [units of from][units of to]
};

// ------------------------------------------------------------------ grids without ends

/// Cells as a product of rings, row by row, and the distances of their differences.
struct Torus {
  std::vector<std::size_t> lengths;
  std::vector<std::size_t> of;     // kind of difference of each cell from cell 0
  std::vector<std::size_t> first;  // a cell of each kind
  std::vector<double> times;       // cells of each kind
  std::vector<double> least;       // distance of each kind; [0]: two units of one cell
  double sum = 0;                  // over the pairs of cells that were looked at
};

std::vector<std::size_t> digits(std::size_t cell, const std::vector<std::size_t>& lengths) {
  std::vector<std::size_t> at(lengths.size());
  for (std::size_t d = lengths.size(); d-- > 0; cell /= lengths[d]) at[d] = cell % lengths[d];
  return at;
}

std::size_t number(const std::vector<std::size_t>& at, const std::vector<std::size_t>& lengths) {
  std::size_t cell = 0;
  for (std::size_t d = 0; d < lengths.size(); ++d) cell = cell * lengths[d] + at[d];
  return cell;
}

/// The kinds of differences: signs do not matter, nor does, where `swaps`, which of equally long dimensions is which.
Torus torus_of(std::vector<std::size_t> lengths, bool swaps) {
  Torus torus{std::move(lengths), {}, {}, {}, {}};
  const std::size_t cells =
      std::accumulate(torus.lengths.begin(), torus.lengths.end(), std::size_t{1}, std::multiplies<>());
  std::vector<std::size_t> kind(cells, cells);
  for (std::size_t cell = 0; cell < cells; ++cell) {
    auto at = digits(cell, torus.lengths);
    for (std::size_t d = 0; d < at.size(); ++d) at[d] = std::min(at[d], torus.lengths[d] - at[d]);
    if (swaps)
      for (std::size_t d = 1; d < at.size(); ++d)
        for (std::size_t e = 0; e < d; ++e)
          if (torus.lengths[d] == torus.lengths[e] && at[d] < at[e]) std::swap(at[d], at[e]);
    std::size_t& known = kind[number(at, torus.lengths)];
    if (known == cells) {
      known = torus.first.size();
      torus.first.push_back(cell);
      torus.times.push_back(0);
    }
    torus.of.push_back(known);
    ++torus.times[known];
  }
  return torus;
}

/// Fills in the least distance of each kind between cells of a grid that lies in the torus, looking at one row in
/// `step`; `sum` is that of what the kinds say of these rows.
void measure(Torus& torus, const std::vector<std::size_t>& lengths, const std::vector<std::vector<Value>>& weight,
             std::size_t step) {
  const std::size_t cells = weight.size(), dimensions = lengths.size();
  std::vector<std::size_t> at, stride(dimensions, 1);
  for (std::size_t d = dimensions - 1; d-- > 0;) stride[d] = stride[d + 1] * torus.lengths[d + 1];
  for (std::size_t u = 0; u < cells; ++u)
    for (const std::size_t x : digits(u, lengths)) at.push_back(x);
  std::vector<Value> least(torus.times.size(), kNever);
  std::vector<std::size_t> seen(least.size(), 0);
  for (std::size_t u = 0; u < cells; u += step)
    for (std::size_t v = 0; v < cells; ++v) {
      std::size_t difference = 0;
      for (std::size_t d = 0; d < dimensions; ++d) {
        const std::size_t a = at[u * dimensions + d], b = at[v * dimensions + d];
        difference += stride[d] * (b >= a ? b - a : b + torus.lengths[d] - a);
      }
      const std::size_t kind = torus.of[difference];
      least[kind] = std::min(least[kind], weight[u][v]);
      ++seen[kind];
    }
  double most = 0;
  for (const Value l : least) most = std::max(most, l == kNever ? 0 : static_cast<double>(l));
  torus.least.clear();
  torus.sum = 0;
  for (std::size_t i = 0; i < least.size(); ++i) {
    // What no two cells differ by may cost anything; within a cell it may be that there is no second unit.
    torus.least.push_back(least[i] != kNever ? static_cast<double>(least[i]) : i == 0 ? 0 : 2 * most);
    if (i > 0) torus.sum += static_cast<double>(seen[i]) * torus.least[i];
  }
}

/// The linear programme, from the side of its dual. For a set S of k units let s(x) be the share of its units whose
/// partner at difference x is in S too, averaged over each kind of x. With v(i) differences of kind i (those of other
/// units of the own cell: kind 0), twice the cost is k Σ v(i) s(i) d(i), and
///   Σ v s = k - 1;   1 + Σ P(χ, i) s(i) ≥ 0 for every character χ of the torus, P its sum over kind i;
///   s(a) + s(b) - s(c) ≤ 1 wherever a difference of kind a and one of b make one of c;   s ≤ 1.
/// Multipliers t, y, w ≥ 0 prove that Σ v s d ≥ t (k - 1) - Σ y - Σ w - Σ max(0, excess of their sum over v d).
class Programme {
 public:
  Programme(const Torus& torus, int each, int count, double work)
      : rows_(torus.times.size()), work_(work), count_(count), v_(torus.times), d_(torus.least) {
    for (double& v : v_) v *= each;
    v_[0] = each - 1;
    scale_ = *std::max_element(d_.begin(), d_.end());
    if (scale_ <= 0) return;
    for (double& d : d_) d /= scale_;
    characters(torus, each);
    triangles(torus, each);
    climb();
  }
  /// Of the sum over all pairs.
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
      // Kinds know no signs, so the product of the cosines sums to the same as the exponentials.
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
  /// Where one of the two differences is short: the fewest hops first, as many as a fixed number of them.
  void triangles(const Torus& torus, int each) {
    const auto& lengths = torus.lengths;
    const std::size_t cells = torus.of.size();
    std::vector<std::pair<std::size_t, std::size_t>> order;  // (hops, cell)
    std::vector<std::vector<std::size_t>> at;
    for (std::size_t cell = 0; cell < cells; ++cell) {
      at.push_back(digits(cell, lengths));
      std::size_t hops = 0;
      for (std::size_t d = 0; d < lengths.size(); ++d) hops += std::min(at[cell][d], lengths[d] - at[cell][d]);
      if (cell > 0) order.emplace_back(hops, cell);
    }
    std::sort(order.begin(), order.end());
    std::unordered_set<std::uint64_t> known;
    std::vector<std::size_t> to(lengths.size());
    std::size_t seen = 0;
    for (const auto& [hops, y] : order) {
      seen += cells;
      if (hops > 4 || seen > 100000) break;
      for (std::size_t x = 1; x < cells; ++x) {
        for (std::size_t d = 0; d < lengths.size(); ++d) {
          to[d] = at[x][d] + at[y][d];
          if (to[d] >= lengths[d]) to[d] -= lengths[d];
        }
        const std::size_t z = number(to, lengths);
        if (z == 0 && each == 1) continue;
        const std::size_t a = std::min(torus.of[x], torus.of[y]), b = std::max(torus.of[x], torus.of[y]),
                          c = torus.of[z];
        if (c == a || c == b) continue;
        if (known.insert((static_cast<std::uint64_t>(a) * rows_ + b) * rows_ + c).second) cuts_.push_back({a, b, c});
      }
    }
  }

  /// Primal simplex on the dual, which the slacks alone make feasible: rows are kinds (divided by v), columns t, the
  /// characters, the triangles, s ≤ 1 and the slacks. The inverse of the basis is kept whole.
  void climb() {
    y_.assign(rows_, 0);
    w_.assign(cuts_.size(), 0);
    t_ = 0;
    // Without a second unit in a cell the row of kind 0 is empty.
    const std::size_t skip = v_[0] > 0 ? 0 : 1, m = rows_ - skip;
    const std::size_t cut = 1 + rows_, one = cut + cuts_.size(), slack = one + m, columns = slack + m;
    std::vector<double> inverse(m * m, 0), x(m), price(m, 0), column(m), entering(m), norm(columns, 1);
    std::vector<std::size_t> basis(m);
    for (std::size_t i = 0; i < m; ++i) {
      inverse[i * m + i] = 1;
      basis[i] = slack + i;
      // Ties would make it stall: each right side a little lower, by a fixed pattern.
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
    std::vector<bool> in(columns, false);
    const auto at = [&](std::size_t kind) { return kind - skip; };
    while (work_ > 0) {
      work_ -= 3 * static_cast<double>(m * m) + 4 * static_cast<double>(cuts_.size());
      std::size_t best = columns;
      double steepest = 1e-9, gain = 0;
      const auto look = [&](std::size_t j, double reduced) {
        if (reduced > steepest * norm[j] && !in[j]) steepest = reduced / norm[j], best = j, gain = reduced;
      };
      look(0, count_ - 1 - std::accumulate(price.begin(), price.end(), 0.0));
      for (std::size_t c = 0; c < rows_; ++c) look(1 + c, -1 - dot(price.data(), &share[c * m], m));
      for (std::size_t c = 0; c < cuts_.size(); ++c) {
        const auto& [a, b, z] = cuts_[c];
        look(cut + c, -1 + price[at(a)] * times(a) + price[at(b)] * times(b) - price[at(z)] * times(z));
      }
      for (std::size_t i = 0; i < m; ++i) {
        look(one + i, -1 + price[i] * times(i + skip));
        look(slack + i, -price[i]);
      }
      if (best == columns) break;
      // The entering column in terms of the basis.
      const auto sparse = [&](std::size_t i, double value) {
        for (std::size_t r = 0; r < m; ++r) entering[r] += value * inverse[r * m + i];
      };
      std::fill(entering.begin(), entering.end(), 0.0);
      if (best < cut) {
        const double* from = best == 0 ? nullptr : &share[(best - 1) * m];
        for (std::size_t r = 0; r < m; ++r)
          entering[r] = from == nullptr ? std::accumulate(&inverse[r * m], &inverse[r * m] + m, 0.0)
                                        : dot(from, &inverse[r * m], m);
      } else if (best < one) {
        const auto& [a, b, z] = cuts_[best - cut];
        sparse(at(a), -times(a)), sparse(at(b), -times(b)), sparse(at(z), times(z));
      } else if (best < slack) {
        sparse(best - one, -times(best - one + skip));
      } else {
        sparse(best - slack, 1);
      }
      std::size_t leaving = m;
      for (std::size_t r = 0; r < m; ++r) {
        if (entering[r] < 1e-9) continue;
        if (leaving == m || x[r] * entering[leaving] < x[leaving] * entering[r]) leaving = r;
      }
      if (leaving == m) break;  // only rounding can say so
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
      in[basis[leaving]] = false, in[best] = true;
      basis[leaving] = best;
    }
    for (std::size_t r = 0; r < m; ++r) {
      const double value = std::max(0.0, x[r]);
      if (basis[r] == 0)
        t_ = value;
      else if (basis[r] < cut)
        y_[basis[r] - 1] = value;
      else if (basis[r] < one)
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

// ------------------------------------------------------------------ spectrum

/// A symmetric matrix, row by row.
struct Square {
  std::size_t n = 0;
  std::vector<double> of;

  double* row(std::size_t i) { return &of[i * n]; }
  const double* row(std::size_t i) const { return &of[i * n]; }
};

/// Whether Cholesky's factors exist; `a` is destroyed. Then no eigenvalue is below -2 (n + 1) ε trace (Higham, Accuracy
/// and Stability of Numerical Algorithms, theorem 10.3; Rump, BIT 46, 2006).
bool factors(Square& a) {
  const std::size_t n = a.n, block = 32;
  for (std::size_t from = 0; from < n; from += block) {
    const std::size_t to = std::min(n, from + block);
    for (std::size_t k = from; k < to; ++k) {
      double* row = a.row(k);
      if (!(row[k] > 0)) return false;
      const double root = std::sqrt(row[k]);
      for (std::size_t j = k; j < n; ++j) row[j] /= root;
      for (std::size_t i = k + 1; i < to; ++i) add(a.row(i) + i, -row[i], row + i, n - i);
    }
    for (std::size_t i = to; i < n; ++i) {
      double* row = a.row(i);
      for (std::size_t k = from; k < to; k += 4) {  // four at once: fewer passes over the row
        if (k + 4 > to) {
          for (std::size_t l = k; l < to; ++l) add(row + i, -a.row(l)[i], a.row(l) + i, n - i);
          break;
        }
        const double *p = a.row(k), *q = a.row(k + 1), *r = a.row(k + 2), *s = a.row(k + 3);
        const double w = p[i], x = q[i], y = r[i], z = s[i];
        for (std::size_t j = i; j < n; ++j) row[j] -= w * p[j] + x * q[j] + (y * r[j] + z * s[j]);
      }
    }
  }
  return true;
}

/// The square of a symmetric matrix.
Square squared(const Square& a) {
  Square result{a.n, std::vector<double>(a.n * a.n, 0)};
  const std::size_t block = 64;
  for (std::size_t from = 0; from < a.n; from += block) {
    const std::size_t to = std::min(a.n, from + block);
    for (std::size_t i = 0; i < a.n; ++i) {
      double* row = result.row(i);
      std::size_t k = from;
      for (; k + 4 <= to; k += 4) {
        const double *p = a.row(k), *q = a.row(k + 1), *r = a.row(k + 2), *s = a.row(k + 3);
        const double w = p[i], x = q[i], y = r[i], z = s[i];
        for (std::size_t j = i; j < a.n; ++j) row[j] += w * p[j] + x * q[j] + (y * r[j] + z * s[j]);
      }
      for (; k < to; ++k) add(row + i, a.row(k)[i], a.row(k) + i, a.n - i);
    }
  }
  for (std::size_t i = 0; i < a.n; ++i)
    for (std::size_t j = 0; j < i; ++j) result.of[i * a.n + j] = result.of[j * a.n + i];
  return result;
}

/// Lower bound by the spectrum. For single units, x their 0/1 choice, k = count, any D ≤ W off the diagonal and any u:
/// with M = D + diag(u), row sums m and x = k/n + y, twice the cost is at least
///   x'Dx = - k²/n² Σm + (2k/n · m - u)'x + y'My,
/// the second at least the sum of the k least, the third (k - k²/n) λ, λ the least eigenvalue of M across the vector of
/// ones. The best that D and u can reach is the semidefinite relaxation with X ≥ 0 (Poljak, Rendl, Wolkowicz 1995). D
/// starts as W cut off at some height; D and u then climb along a gradient that is smoothed over the lower end of the
/// spectrum (Nesterov 2007), here by a power of the matrix. λ is estimated on the way (Lanczos 1950) and proven once.
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
    // Lanczos and one proof have to fit.
    if (k_ < 2 || k_ >= static_cast<int>(n_)) return 0;
    work_ -= n * n * n / 2 + 100 * n * n;
    if (work_ < 0) return 0;
    Point at;
    at.d = {n_, w_};
    at.u.assign(n_, 0);
    const double height = cut();
    for (double& d : at.d.of) d = std::min(d, height);
    look(at);
    double stride = 4;  // of the spectrum's width, a first step; found by trying, as are the powers
    int power = 3;
    const double aim = static_cast<double>(enough) / scale_ * 2 * 1.001;
    for (;;) {
      const double step = (power / 2.0 + 0.5) * n * n * n + 200 * n * n;
      work_ -= step;
      if (work_ < 0 || at.value > aim || stride < 0.002) break;
      Point best = at;
      const Square way = gradient(at, power);
      double length = 0;
      for (const double share : {stride, stride / 2, stride / 4}) {
        Point next = at;
        move(next, way, share * at.width / spread_);
        look(next);
        if (next.value <= best.value) {
          if (length > 0) break;
          continue;
        }
        length = share;
        best = std::move(next);
      }
      if (length == 0) power = std::min(power + 1, 10);  // closer to what is not smooth
      stride = length > 0 ? 1.5 * length : stride / 2;
      at = std::move(best);
    }
    double result = 0;
    for (const double margin : {1e-3, 1e-2, 5e-2})
      if (const double proven = prove(at, margin * at.width); proven > 0) {
        result = proven;
        break;
      }
    return result > 0 ? static_cast<Value>(std::floor(result / 2 * scale_ * (1 - 1e-12))) : 0;
  }

 private:
  struct Point {
    Square d = {};
    std::vector<double> u = {}, c = {};      // c: 2k/n · m - u
    double total = 0, least = 0, width = 0;  // Σm; the spectrum across the ones, as far as Lanczos sees it
    double value = 0;                        // of the bound, if λ is `least`
    std::vector<double> low = {};            // its vector
  };

  /// Where to cut off W at first: as if it were without order, its spectrum a semicircle (Füredi, Komlós 1981).
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
  /// Fills in what follows from d and u.
  void look(Point& at) {
    const double n = static_cast<double>(n_), k = k_;
    at.total = 0;
    at.c.resize(n_);
    for (std::size_t i = 0; i < n_; ++i) {
      const double m = std::accumulate(at.d.row(i), at.d.row(i) + n_, at.u[i]);
      at.total += m;
      at.c[i] = 2 * k / n * m - at.u[i];
    }
    lanczos(at);
    at.value = -k * k / n / n * at.total + linear(at.c) + at.least * spread_;
  }
  void lanczos(Point& at) const {
    const std::size_t steps = std::min<std::size_t>(n_ - 1, 30);
    std::vector<std::vector<double>> basis;
    std::vector<double> diagonal, off, v(n_), next(n_);
    const auto across = [&](std::vector<double>& x) {
      const double mean = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(n_);
      for (double& value : x) value -= mean;
    };
    const auto norm = [&](const std::vector<double>& x) { return std::sqrt(dot(x.data(), x.data(), n_)); };
    for (std::size_t i = 0; i < n_; ++i)  // the last vector, and a little of everything
      v[i] = (at.low.empty() ? 0 : at.low[i]) + 0.05 * (std::fmod(static_cast<double>(i * i + i) * 0.618034, 1) - 0.5);
    across(v);
    double length = norm(v);
    for (std::size_t s = 0; s < steps && length > 1e-12; ++s) {
      for (double& value : v) value /= length;
      std::fill(next.begin(), next.end(), 0.0);
      for (std::size_t i = 0; i < n_; ++i) add(next.data(), v[i], at.d.row(i), n_);
      for (std::size_t i = 0; i < n_; ++i) next[i] += at.u[i] * v[i];
      across(next);
      diagonal.push_back(dot(v.data(), next.data(), n_));
      basis.push_back(v);
      for (int twice = 0; twice < 2; ++twice)
        for (const auto& b : basis) add(next.data(), -dot(b.data(), next.data(), n_), b.data(), n_);
      length = norm(next);
      off.push_back(length);
      std::swap(v, next);
    }
    const std::size_t m = diagonal.size();
    at.least = at.width = 0;
    if (m == 0) return;
    // Ends of the tridiagonal matrix's spectrum, by Sturm's count of the signs.
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
    at.least = end(1);
    at.width = std::max(1e-9, end(m) - at.least);
    // Its vector, by the recurrence: good enough to start the next from.
    std::vector<double> y(m, 1);
    double size = 1;
    for (std::size_t s = 0; s + 1 < m && size < 1e100; ++s) {
      y[s + 1] = off[s] == 0 ? 0 : ((at.least - diagonal[s]) * y[s] - (s > 0 ? off[s - 1] * y[s - 1] : 0)) / off[s];
      size = std::max(size, std::abs(y[s + 1]));
    }
    at.low.assign(n_, 0);
    for (std::size_t s = 0; s < m; ++s)
      if (size < 1e100) add(at.low.data(), y[s], basis[s].data(), n_);
    if (const double whole = norm(at.low); whole > 0)
      for (double& value : at.low) value /= whole;
  }
  /// What is M across the ones: every row's mean taken off, from both sides.
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
  /// Derivatives by d, and on the diagonal by u, with the spectrum's lower end weighted by (1 - x)^(2^power).
  Square gradient(const Point& at, int power) const {
    const double n = static_cast<double>(n_), k = k_;
    Square x = crossed(at);
    const double top = at.least + 1.02 * at.width, unit = 1 / (top - at.least);
    for (std::size_t i = 0; i < n_; ++i)
      for (std::size_t j = 0; j < n_; ++j)
        x.row(i)[j] = unit * ((i == j ? top : 0) - x.row(i)[j] - top / n);  // the ones themselves become 0
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
  /// The bound with λ so far below its estimate that a factorization proves it; 0 where that fails.
  double prove(const Point& at, double margin) const {
    const double n = static_cast<double>(n_), k = k_, least = at.least - margin;
    Square a = crossed(at);
    double size = std::abs(least) + 1;
    for (const double value : a.of) size = std::max(size, std::abs(value));
    for (std::size_t i = 0; i < n_; ++i)
      for (std::size_t j = 0; j < n_; ++j) a.row(i)[j] += 1 - (i == j ? least : 0);  // the ones themselves: n
    if (!factors(a)) return 0;
    // What rounding may have cost: the matrix's entries, its factors, and the sums.
    const double eigenvalue = least - 1e-14 * n * n * size, part = linear(at.c);
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

Bounded tree_bound(const ClusterProblem& p) {
  const std::size_t classes = p.capacity.size(), most = static_cast<std::size_t>(p.count);
  if (static_cast<double>(classes * classes) > kTreeWork * p.effort) return {};
  const auto joins = joins_of(p);
  struct Branch {
    std::vector<std::size_t> classes;
    std::vector<Value> least;        // of so many units
    std::vector<std::size_t> first;  // how many of them are of the join's first branch
  };
  std::vector<Branch> branches(classes + joins.size());
  std::size_t root = 0;
  for (std::size_t c = 0; c < classes; ++c) {
    if (p.capacity[c] == 0) continue;
    root = c;
    branches[c].classes.push_back(c);
    for (std::size_t n = 0; n <= std::min(most, static_cast<std::size_t>(p.capacity[c])); ++n)
      branches[c].least.push_back(pairs(static_cast<Value>(n)) * p.weight[c][c]);
  }
  for (std::size_t j = 0; j < joins.size(); ++j) {
    const Branch &a = branches[joins[j].first], &b = branches[joins[j].second];
    Branch& both = branches[root = classes + j];
    both.classes = a.classes;
    both.classes.insert(both.classes.end(), b.classes.begin(), b.classes.end());
    const std::size_t end_a = a.least.size(), end_b = b.least.size();
    const Across from_a(p, a.classes, b.classes, end_a - 1, end_b - 1);
    const Across from_b(p, b.classes, a.classes, end_b - 1, end_a - 1);
    const std::size_t end = std::min(most + 1, end_a + end_b - 1);
    both.least.assign(end, kNever);
    both.first.assign(end, 0);
    for (std::size_t s = 0; s < end_a; ++s)
      for (std::size_t t = 0; t < end_b && s + t < end; ++t) {
        const Value cost = a.least[s] + b.least[t] + std::max(from_a(s, t), from_b(t, s));
        if (cost < both.least[s + t]) both.least[s + t] = cost, both.first[s + t] = s;
      }
  }
  Bounded result{branches[root].least[most], std::vector<int>(classes, 0)};
  std::vector<std::pair<std::size_t, std::size_t>> open{{root, most}};
  while (!open.empty()) {
    const auto [branch, units] = open.back();
    open.pop_back();
    if (branch < classes) {
      result.counts[branch] = static_cast<int>(units);
      continue;
    }
    const std::size_t first = branches[branch].first[units];
    open.emplace_back(joins[branch - classes].first, first);
    open.emplace_back(joins[branch - classes].second, units - first);
  }
  return result;
}

std::int64_t spectral_bound(const ClusterProblem& problem, std::int64_t enough) {
  return Spectrum(problem, kSpectrumWork * problem.effort).run(enough);
}

Cells cells_of(const ClusterProblem& p, std::size_t cells) {
  std::vector<std::vector<Value>> weight(cells, std::vector<Value>(cells, kNever));
  std::vector<int> capacity(cells, 0);
  for (std::size_t a = 0; a < p.cell.size(); ++a) {
    const auto u = static_cast<std::size_t>(p.cell[a]);
    capacity[u] += p.capacity[a];
    for (std::size_t b = 0; b < p.cell.size(); ++b) {
      Value& at = weight[u][static_cast<std::size_t>(p.cell[b])];
      if (a != b || p.capacity[a] > 1) at = std::min(at, p.weight[a][b]);
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
      if (weight[u][v] == kNever) return 0;  // a place without any class
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
  const int each = *std::max_element(capacity.begin(), capacity.end());
  // A mesh is part of a torus of nearly twice its lengths; of less, if all differences in compact sets are short.
  const auto padded = [&](const std::vector<std::size_t>& lengths, double sides) {
    const double side = std::pow(static_cast<double>(p.count) / each, 1 / static_cast<double>(lengths.size()));
    const auto wide = static_cast<std::size_t>(std::ceil(std::min(sides * side, 4096.0)));
    std::vector<std::size_t> result;
    for (const std::size_t l : lengths) result.push_back(std::clamp(wide, l, 2 * l - 1));
    return result;
  };
  struct Fit {
    double sum = 0;
    std::vector<std::size_t> lengths = {};
  } ring, path;
  for (const auto& lengths : shapes)
    for (Fit* fit : {&ring, &path}) {
      Torus torus = fit == &ring ? torus_of(lengths, true) : torus_of(padded(lengths, 1e9), false);
      if (fit == &ring && torus.times.size() > 700) continue;  // the programme would not get far
      measure(torus, lengths, weight, 1 + cells / 24);
      if (torus.sum > 1.0001 * fit->sum) *fit = {torus.sum, lengths};
    }
  // A mesh's differences say more than a torus's of everything, so they have to say much more.
  const bool mesh = path.sum > 1.04 * ring.sum;
  const auto& best = mesh ? path.lengths : ring.lengths;
  if (best.empty()) return 0;
  Torus torus = torus_of(best, true);
  if (mesh) torus = torus_of(padded(best, 2.7), true);
  for (double sides = 2.6; mesh && torus.times.size() > 280 && sides > 1.6; sides -= 0.1)
    torus = torus_of(padded(best, sides), true);
  if (torus.times.size() > 700) return 0;
  measure(torus, best, weight, 1);
  // Where the differences tell little of the distances, the bound would tell little of the cost.
  if (torus.sum < 0.7 * total) return 0;
  if (Torus apart = torus_of(torus.lengths, false);
      apart.times.size() > torus.times.size() && apart.times.size() <= 300) {
    measure(apart, best, weight, 1);
    if (apart.sum > 1.005 * torus.sum) torus = std::move(apart);
  }
  const double bound = Programme(torus, each, p.count, kProgrammeWork * p.effort).bound();
  return bound > 0 ? static_cast<Value>(std::floor(bound * (1 - 1e-12))) : 0;
}

}  // namespace mm::place
