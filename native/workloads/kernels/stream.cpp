/// Sequential passes through arrays: fill, copy, scale, add, triad (after STREAM) and related kernels, also with a
/// stride, and with stores past the caches.
#include <algorithm>
#include <array>
#include <cmath>

#include "workloads/access.hpp"

namespace mm::workloads {
namespace {

constexpr std::size_t kElements = 64;  // per unit: small, so that the smallest volumes still have several units
constexpr double kFactor = 0.5;

/// N arrays of reals in which unit u covers every stride-th element of [u, u + 1) * kElements * stride. The kernel
/// writes array 0. The others contain 1 + k + i/2^20, which is exact in binary, so that results can be compared
/// exactly.
template <class A, std::size_t N>
class ArrayWalk : public Kernel {
 protected:
  using Real = typename A::template Value<double>;
  using Reals = typename A::template Array<double>;

 public:
  ArrayWalk(const Shape& shape, Memory& memory)
      : stride_(static_cast<std::size_t>(shape.stride)), n_(fit(shape, N, sizeof(double), kElements)) {
    for (std::size_t k = 0; k < N; ++k) {
      array_[k] = {memory.take<double>(n_)};
      for (std::size_t i = 0; i < n_; ++i) array_[k].p[i] = at(k, i);
    }
  }
  std::size_t units() const override { return n_ / (kElements * stride_); }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(array_[0].p, n_)); }

 protected:
  static double at(std::size_t k, std::size_t i) {
    return static_cast<double>(k + 1) + static_cast<double>(i % 4096) * 0x1p-20;
  }

  /// Returns the counts of a unit from the flops, loads and stores per element. `lines` arrays are touched, and one of
  /// them is written.
  Counts each(double flops, double loads, double stores, double lines) const {
    const double n = kElements;
    const double per_array =
        static_cast<double>(kLine) * std::ceil(n * 8 * std::min<double>(static_cast<double>(stride_), 8) / kLine);
    Counts c;
    c.flops = flops * n;
    c.load_bytes = loads * n * 8;
    c.store_bytes = stores * n * 8;
    c.line_read_bytes = lines * per_array;
    c.line_write_bytes = (stores > 0 ? 1 : 0) * per_array;
    return c;
  }
  /// Calls body(i) for the elements of these units.
  template <class Body>
  void over(std::size_t first, std::size_t last, const Body& body) const {
    const std::size_t stride = stride_;
    for (std::size_t u = first; u < last; ++u) {
      const std::size_t start = u * kElements * stride;
      if (stride == 1)  // a separate loop, since only this one vectorises
        for (std::size_t j = 0; j < kElements; ++j) body(start + j);
      else
        for (std::size_t j = 0; j < kElements; ++j) body(start + j * stride);
      A::end_unit();
    }
  }
  /// Verifies that every element that a unit covers has its old or its new value, and that elements in between have not
  /// changed.
  template <class Expected>
  std::string compare(const Expected& expected) const {
    for (std::size_t i = 0; i < n_; ++i) {
      const double actual = array_[0].p[i], initial = at(0, i);
      if (actual != initial && (i % stride_ != 0 || actual != expected(i)))
        return "element " + std::to_string(i) + " is " + std::to_string(actual) + ", neither " +
               std::to_string(initial) + " nor " + std::to_string(expected(i));
    }
    return "";
  }
  std::array<Reals, N> array_;
  std::size_t stride_, n_;
};

template <class A>
struct Fill final : ArrayWalk<A, 1> {
  using ArrayWalk<A, 1>::ArrayWalk;
  Counts counts() const override { return this->each(0, 0, 1, 1); }
  void run(std::size_t first, std::size_t last, int) override {
    const auto a = this->array_[0];
    this->over(first, last, [=](std::size_t i) { a[i] = kFactor; });
  }
  std::string verify() const override {
    return this->compare([](std::size_t) { return kFactor; });
  }
};

template <class A>
struct Copy final : ArrayWalk<A, 2> {
  using ArrayWalk<A, 2>::ArrayWalk;
  using typename ArrayWalk<A, 2>::Real;
  Counts counts() const override { return this->each(0, 1, 1, 2); }
  void run(std::size_t first, std::size_t last, int) override {
    const auto a = this->array_[0], b = this->array_[1];
    this->over(first, last, [=](std::size_t i) { a[i] = Real(b[i]); });
  }
  std::string verify() const override {
    return this->compare([](std::size_t i) { return ArrayWalk<A, 2>::at(1, i); });
  }
};

template <class A>
struct Scale final : ArrayWalk<A, 2> {
  using ArrayWalk<A, 2>::ArrayWalk;
  Counts counts() const override { return this->each(1, 1, 1, 2); }
  void run(std::size_t first, std::size_t last, int) override {
    const auto a = this->array_[0], b = this->array_[1];
    this->over(first, last, [=](std::size_t i) { a[i] = kFactor * b[i]; });
  }
  std::string verify() const override {
    return this->compare([](std::size_t i) { return kFactor * ArrayWalk<A, 2>::at(1, i); });
  }
};

template <class A>
struct Add final : ArrayWalk<A, 3> {
  using ArrayWalk<A, 3>::ArrayWalk;
  Counts counts() const override { return this->each(1, 2, 1, 3); }
  void run(std::size_t first, std::size_t last, int) override {
    const auto a = this->array_[0], b = this->array_[1], c = this->array_[2];
    this->over(first, last, [=](std::size_t i) { a[i] = b[i] + c[i]; });
  }
  std::string verify() const override {
    return this->compare([](std::size_t i) { return ArrayWalk<A, 3>::at(1, i) + ArrayWalk<A, 3>::at(2, i); });
  }
};

template <class A>
struct Triad final : ArrayWalk<A, 3> {
  using ArrayWalk<A, 3>::ArrayWalk;
  Counts counts() const override { return this->each(2, 2, 1, 3); }
  void run(std::size_t first, std::size_t last, int) override {
    const auto a = this->array_[0], b = this->array_[1], c = this->array_[2];
    this->over(first, last, [=](std::size_t i) { a[i] = b[i] + kFactor * c[i]; });
  }
  std::string verify() const override {
    return this->compare([](std::size_t i) { return ArrayWalk<A, 3>::at(1, i) + kFactor * ArrayWalk<A, 3>::at(2, i); });
  }
};

template <class A>
struct Schoenauer final : ArrayWalk<A, 4> {
  using ArrayWalk<A, 4>::ArrayWalk;
  Counts counts() const override { return this->each(2, 3, 1, 4); }
  void run(std::size_t first, std::size_t last, int) override {
    const auto a = this->array_[0], b = this->array_[1], c = this->array_[2], d = this->array_[3];
    this->over(first, last, [=](std::size_t i) { a[i] = b[i] + c[i] * d[i]; });
  }
  std::string verify() const override {
    return this->compare([](std::size_t i) {
      return ArrayWalk<A, 4>::at(1, i) + ArrayWalk<A, 4>::at(2, i) * ArrayWalk<A, 4>::at(3, i);
    });
  }
};

/// y = x/2 - y, in place. Two passes restore y.
template <class A>
struct Daxpy final : ArrayWalk<A, 2> {
  using ArrayWalk<A, 2>::ArrayWalk;
  Counts counts() const override { return this->each(2, 2, 1, 2); }
  void run(std::size_t first, std::size_t last, int) override {
    const auto a = this->array_[0], b = this->array_[1];
    this->over(first, last, [=](std::size_t i) { a[i] = kFactor * b[i] - a[i]; });
  }
  std::string verify() const override {
    return this->compare([](std::size_t i) { return kFactor * ArrayWalk<A, 2>::at(1, i) - ArrayWalk<A, 2>::at(0, i); });
  }
};

/// a = 4 - a, in place. There is one array, and half of the traffic is writes.
template <class A>
struct Update final : ArrayWalk<A, 1> {
  using ArrayWalk<A, 1>::ArrayWalk;
  using typename ArrayWalk<A, 1>::Real;
  Counts counts() const override { return this->each(1, 1, 1, 1); }
  void run(std::size_t first, std::size_t last, int) override {
    const auto a = this->array_[0];
    this->over(first, last, [=](std::size_t i) { a[i] = Real(4) - a[i]; });
  }
  std::string verify() const override {
    return this->compare([](std::size_t i) { return 4 - ArrayWalk<A, 1>::at(0, i); });
  }
};

/// Sums of arrays that are only read. One sum per unit is retained for verification.
template <class A, std::size_t N>
class Reduce : public ArrayWalk<A, N> {
 public:
  Reduce(const Shape& shape, Memory& memory) : ArrayWalk<A, N>(shape, memory), sums_(this->units(), -1.0) {}
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(sums_)); }

 protected:
  template <class Term>
  void reduce(std::size_t first, std::size_t last, const Term& term) {
    const std::size_t stride = this->stride_;
    for (std::size_t u = first; u < last; ++u) {
      const std::size_t start = u * kElements * stride;
      std::array<typename ArrayWalk<A, N>::Real, 8> part{};  // independent sums, to hide the latency of additions
      for (std::size_t j = 0; j < kElements; j += 8)
        for (std::size_t k = 0; k < 8; ++k) part[k] = part[k] + term(start + (j + k) * stride);
      double total = 0;
      for (std::size_t k = 0; k < 8; ++k) total += bare(part[k]);
      sums_[u] = total;
      A::end_unit();
    }
  }
  template <class Term>
  std::string check(const Term& term) const {
    for (std::size_t u = 0; u < sums_.size(); ++u) {
      double expected = 0;
      for (std::size_t j = 0; j < kElements; ++j) expected += term(u * kElements * this->stride_ + j * this->stride_);
      if (sums_[u] != -1.0 && !(std::fabs(sums_[u] - expected) <= 1e-12 * std::fabs(expected)))
        return "unit " + std::to_string(u) + " has the sum " + std::to_string(sums_[u]) + ", not " +
               std::to_string(expected);
    }
    return "";
  }
  std::vector<double> sums_;  ///< -1 for a unit that is not done yet
};

template <class A>
struct Sum final : Reduce<A, 1> {
  using Reduce<A, 1>::Reduce;
  Counts counts() const override { return this->each(1, 1, 0, 1); }
  void run(std::size_t first, std::size_t last, int) override {
    const auto a = this->array_[0];
    this->reduce(first, last, [=](std::size_t i) -> typename A::template Value<double> { return a[i]; });
  }
  std::string verify() const override {
    return this->check([](std::size_t i) { return ArrayWalk<A, 1>::at(0, i); });
  }
};

template <class A>
struct Dot final : Reduce<A, 2> {
  using Reduce<A, 2>::Reduce;
  Counts counts() const override { return this->each(2, 2, 0, 2); }
  void run(std::size_t first, std::size_t last, int) override {
    const auto a = this->array_[0], b = this->array_[1];
    this->reduce(first, last, [=](std::size_t i) { return a[i] * b[i]; });
  }
  std::string verify() const override {
    return this->check([](std::size_t i) { return ArrayWalk<A, 2>::at(0, i) * ArrayWalk<A, 2>::at(1, i); });
  }
};

/// Stores past the caches. Lines are not read first.
template <class A, std::size_t N>
class Past : public ArrayWalk<A, N> {
 public:
  Past(const Shape& shape, Memory& memory) : ArrayWalk<A, N>(shape, memory) {}

 protected:
  Counts past(double flops, double loads) const {
    Counts c = this->each(flops, loads, 1, A::has_past ? static_cast<double>(N - 1) : static_cast<double>(N));
    return c;
  }
  template <class Term>
  void stream(std::size_t first, std::size_t last, const Term& term) {
    const auto a = this->array_[0];
    for (std::size_t u = first; u < last; ++u) {
      const std::size_t start = u * kElements;
      for (std::size_t j = 0; j < kElements; j += 2) A::store_past(a, start + j, term(start + j), term(start + j + 1));
      A::end_unit();
    }
    A::end_past();
  }
};

template <class A>
struct FillPast final : Past<A, 1> {
  using Past<A, 1>::Past;
  Counts counts() const override { return this->past(0, 0); }
  void run(std::size_t first, std::size_t last, int) override {
    this->stream(first, last, [](std::size_t) { return kFactor; });
  }
  std::string verify() const override {
    return this->compare([](std::size_t) { return kFactor; });
  }
};

template <class A>
struct CopyPast final : Past<A, 2> {
  using Past<A, 2>::Past;
  Counts counts() const override { return this->past(0, 1); }
  void run(std::size_t first, std::size_t last, int) override {
    const auto b = this->array_[1];
    this->stream(first, last, [=](std::size_t i) -> typename A::template Value<double> { return b[i]; });
  }
  std::string verify() const override {
    return this->compare([](std::size_t i) { return ArrayWalk<A, 2>::at(1, i); });
  }
};

template <class A>
struct TriadPast final : Past<A, 3> {
  using Past<A, 3>::Past;
  Counts counts() const override { return this->past(2, 2); }
  void run(std::size_t first, std::size_t last, int) override {
    const auto b = this->array_[1], c = this->array_[2];
    this->stream(first, last, [=](std::size_t i) { return b[i] + kFactor * c[i]; });
  }
  std::string verify() const override {
    return this->compare([](std::size_t i) { return ArrayWalk<A, 3>::at(1, i) + kFactor * ArrayWalk<A, 3>::at(2, i); });
  }
};

const Register<Fill> fill{{.name = "fill",
                           .kind = "stream",
                           .summary = "a = s",
                           .source = "memset; likwid-bench store",
                           .parity = true,
                           .strided = true}};
const Register<Copy> copy{{.name = "copy",
                           .kind = "stream",
                           .summary = "a = b",
                           .source = "after STREAM Copy",
                           .parity = true,
                           .strided = true}};
const Register<Scale> scale{
    {.name = "scale", .kind = "stream", .summary = "a = s b", .source = "after STREAM Scale", .strided = true}};
const Register<Add> add{
    {.name = "add", .kind = "stream", .summary = "a = b + c", .source = "after STREAM Add", .strided = true}};
const Register<Triad> triad{{.name = "triad",
                             .kind = "stream",
                             .summary = "a = b + s c",
                             .source = "after STREAM Triad",
                             .parity = true,
                             .strided = true}};
const Register<Schoenauer> schoenauer{{.name = "schoenauer",
                                       .kind = "stream",
                                       .summary = "a = b + c d",
                                       .source = "Schoenauer's vector triad; likwid-bench triad",
                                       .strided = true}};
const Register<Daxpy> daxpy{{.name = "daxpy",
                             .kind = "stream",
                             .summary = "y = s x - y, in place",
                             .source = "BLAS 1",
                             .parity = true,
                             .strided = true}};
const Register<Update> update{{.name = "update",
                               .kind = "stream",
                               .summary = "a = 4 - a, in place",
                               .source = "likwid-bench update",
                               .strided = true}};
const Register<Sum> sum{{.name = "sum",
                         .kind = "stream",
                         .summary = "sum of a",
                         .source = "RAJAPerf REDUCE_SUM",
                         .parity = true,
                         .strided = true}};
const Register<Dot> dot{
    {.name = "dot", .kind = "stream", .summary = "sum of a b", .source = "BLAS 1", .parity = true, .strided = true}};
const Register<FillPast> fill_past{
    {.name = "fill_past", .kind = "stream", .summary = "a = s, past the caches", .source = "likwid-bench store_mem"}};
const Register<CopyPast> copy_past{
    {.name = "copy_past", .kind = "stream", .summary = "a = b, past the caches", .source = "likwid-bench copy_mem"}};
const Register<TriadPast> triad_past{{.name = "triad_past",
                                      .kind = "stream",
                                      .summary = "a = b + s c, past the caches",
                                      .source = "likwid-bench stream_mem"}};

}  // namespace
}  // namespace mm::workloads
