#pragma once
/// Two access types for the same source text of a load kernel. `Uncounted` uses plain memory and numbers at full speed.
/// `Counted` uses memory and numbers that count their operations, to test a kernel's counts.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <unordered_set>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "workloads/kernel.hpp"

namespace mm::workloads {

/// The counts of this thread since the last reset. The sets of lines cover one unit: `end_unit` adds them to the
/// counts.
struct Tally {
  Counts counts;
  std::unordered_set<std::uintptr_t> touched, written, past;
  std::uintptr_t scratch_from = 0, scratch_to = 0;

  void load(const void* at, std::size_t bytes) {
    counts.load_bytes += static_cast<double>(bytes);
    lines(touched, at, bytes);
  }
  void store(const void* at, std::size_t bytes) {
    counts.store_bytes += static_cast<double>(bytes);
    lines(touched, at, bytes);
    lines(written, at, bytes);
  }
  void store_past(const void* at, std::size_t bytes) {
    counts.store_bytes += static_cast<double>(bytes);
    lines(past, at, bytes);
  }
  void end_unit() {
    counts.line_read_bytes += static_cast<double>(kLine * touched.size());
    counts.line_write_bytes += static_cast<double>(kLine * (written.size() + past.size()));
    touched.clear();
    written.clear();
    past.clear();
  }

 private:
  void lines(std::unordered_set<std::uintptr_t>& set, const void* at, std::size_t bytes) const {
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    if (address >= scratch_from && address < scratch_to) return;
    for (std::uintptr_t line = address / kLine; line <= (address + bytes - 1) / kLine; ++line) set.insert(line);
  }
};
Tally& tally();  ///< returns the tally of this thread

/// A number that counts its operations.
template <class T>
struct Number {
  T v{};
  Number() = default;
  Number(T value) : v(value) {}  // NOLINT(google-explicit-constructor): kernels mix numbers and literals

  static void one() {
    if constexpr (std::is_floating_point_v<T>)
      tally().counts.flops += 1;
    else
      tally().counts.int_ops += 1;
  }
#define MM_OPERATOR(op)                                                                  \
  friend Number operator op(Number a, Number b) { return one(), Number(T(a.v op b.v)); } \
  Number& operator op##=(Number b) { return *this = *this op b; }
  MM_OPERATOR(+)
  MM_OPERATOR(-)
  MM_OPERATOR(*)
  MM_OPERATOR(/)
#undef MM_OPERATOR
#define MM_INTEGER_OPERATOR(op)                 \
  friend Number operator op(Number a, Number b) \
    requires std::is_integral_v<T>              \
  {                                             \
    return one(), Number(T(a.v op b.v));        \
  }                                             \
  Number& operator op##=(Number b)              \
    requires std::is_integral_v<T>              \
  {                                             \
    return *this = *this op b;                  \
  }
  MM_INTEGER_OPERATOR(^)
  MM_INTEGER_OPERATOR(&)
  MM_INTEGER_OPERATOR(|)
  MM_INTEGER_OPERATOR(%)
  MM_INTEGER_OPERATOR(<<)
  MM_INTEGER_OPERATOR(>>)
#undef MM_INTEGER_OPERATOR
#define MM_COMPARISON(op) \
  friend bool operator op(Number a, Number b) { return one(), a.v op b.v; }
  MM_COMPARISON(<)
  MM_COMPARISON(>)
  MM_COMPARISON(<=)
  MM_COMPARISON(>=)
  MM_COMPARISON(==)
  MM_COMPARISON(!=)
#undef MM_COMPARISON
  friend Number operator-(Number a) { return one(), Number(T(-a.v)); }
};

/// Returns the plain value, without counting: for indices.
template <class T>
T bare(Number<T> x) {
  return x.v;
}
template <class T>
  requires std::is_arithmetic_v<T>
T bare(T x) {
  return x;
}

#define MM_FUNCTION(name)                               \
  using std::name;                                      \
  template <class T>                                    \
  Number<T> name(Number<T> x) {                         \
    return Number<T>::one(), Number<T>(std::name(x.v)); \
  }
MM_FUNCTION(sqrt)
MM_FUNCTION(exp)
MM_FUNCTION(log)
MM_FUNCTION(sin)
MM_FUNCTION(cos)
MM_FUNCTION(erf)
MM_FUNCTION(erfc)
MM_FUNCTION(fabs)
#undef MM_FUNCTION
/// Returns the smaller value, as one operation. (std::min would need references, which counted values do not have.)
template <class T>
T smaller(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T larger(T a, T b) {
  return a < b ? b : a;
}

struct Uncounted {
  template <class T>
  using Value = T;

  /// A view of memory. Copy it into a local variable before a loop, so that the compiler knows that the view does not
  /// change.
  template <class T>
  struct Array {
    T* p = nullptr;
    T& operator[](std::size_t i) const { return p[i]; }
    Array from(std::size_t i) const { return {p + i}; }
  };

  /// Stores two doubles past the caches, if the processor can; `i` is even.
  static void store_past(Array<double> a, std::size_t i, double x, double y) {
#if defined(__x86_64__)
    _mm_stream_pd(a.p + i, _mm_set_pd(y, x));
#else
    a.p[i] = x;
    a.p[i + 1] = y;
#endif
  }
  /// Makes these stores visible to other threads. Call it after the last store.
  static void end_past() {
#if defined(__x86_64__)
    _mm_sfence();
#endif
  }
  static constexpr bool has_past =
#if defined(__x86_64__)
      true;
#else
      false;
#endif
  static void end_unit() {}
  template <class T>
  static void scratch(const T&) {}
};

struct Counted {
  template <class T>
  using Value = Number<T>;

  template <class T>
  struct Reference {
    T* p;
    Number<T> get() const {
      tally().load(p, sizeof(T));
      return Number<T>(*p);
    }
    operator Number<T>() const { return get(); }  // NOLINT(google-explicit-constructor): stands for a double&
    const Reference& operator=(Number<T> x) const {
      tally().store(p, sizeof(T));
      *p = x.v;
      return *this;
    }
    // NOLINTNEXTLINE(bugprone-unhandled-self-assignment): x = x loads and stores, and both are counted
    const Reference& operator=(const Reference& other) const { return *this = other.get(); }
    Reference(const Reference&) = default;
    explicit Reference(T* at) : p(at) {}
#define MM_UPDATE(op) \
  const Reference& operator op##=(Number<T> x) const { return *this = get() op x; }
    MM_UPDATE(+)
    MM_UPDATE(-)
    MM_UPDATE(*)
    MM_UPDATE(/)
#undef MM_UPDATE
#define MM_INTEGER_UPDATE(op)                        \
  const Reference& operator op##=(Number<T> x) const \
    requires std::is_integral_v<T>                   \
  {                                                  \
    return *this = get() op x;                       \
  }
    MM_INTEGER_UPDATE(^)
    MM_INTEGER_UPDATE(&)
    MM_INTEGER_UPDATE(|)
#undef MM_INTEGER_UPDATE
  };

  template <class T>
  struct Array {
    T* p = nullptr;
    Reference<T> operator[](std::size_t i) const { return Reference<T>(p + i); }
    Array from(std::size_t i) const { return {p + i}; }
  };

  static void store_past(Array<double> a, std::size_t i, Number<double> x, Number<double> y) {
    tally().store_past(a.p + i, 2 * sizeof(double));
    a.p[i] = x.v;
    a.p[i + 1] = y.v;
  }
  static void end_past() {}
  static constexpr bool has_past = Uncounted::has_past;
  static void end_unit() { tally().end_unit(); }
  /// Declares `work` as a thread's small work space or table, which all units use: it stays in the first-level cache,
  /// so its loads and stores count, but its lines do not. Only one work space can be declared at a time.
  template <class T>
  static void scratch(const T& work) {
    tally().scratch_from = reinterpret_cast<std::uintptr_t>(&work);
    tally().scratch_to = tally().scratch_from + sizeof work;
  }
};

// Operators between references and numbers: templates do not apply implicit conversions.
#define MM_MIXED(op)                                                                    \
  template <class T>                                                                    \
  auto operator op(const Counted::Reference<T>& a, const Counted::Reference<T>& b) {    \
    const Number<T> x = a.get(), y = b.get();                                           \
    return x op y;                                                                      \
  }                                                                                     \
  template <class T>                                                                    \
  auto operator op(const Counted::Reference<T>& a, std::type_identity_t<Number<T>> b) { \
    return a.get() op b;                                                                \
  }                                                                                     \
  template <class T>                                                                    \
  auto operator op(std::type_identity_t<Number<T>> a, const Counted::Reference<T>& b) { \
    return a op b.get();                                                                \
  }
MM_MIXED(+)
MM_MIXED(-)
MM_MIXED(*)
MM_MIXED(/)
MM_MIXED(<)
MM_MIXED(>)
MM_MIXED(<=)
MM_MIXED(>=)
MM_MIXED(==)
MM_MIXED(!=)
MM_MIXED(^)
MM_MIXED(&)
MM_MIXED(|)
MM_MIXED(%)
#undef MM_MIXED

}  // namespace mm::workloads
