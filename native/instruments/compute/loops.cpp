/// loops: the time of short vector loops by their length, which shows the cost of starting a loop, and the length from
/// which on vectors pay off.
#include <algorithm>
#include <cmath>

#include "base/clock.hpp"
#include "base/harness/instrument.hpp"
#include "base/harness/provenance.hpp"
#include "base/options/options.hpp"
#include "kernels/isa.hpp"

namespace {

using mm::json;

const mm::Description kLoops{
    .name = "loops",
    .summary = "time of short loops over vectors in the first-level cache, by their length",
    .detail =
        "copy: a = b; triad: a = b + s c; axpy: a = a + s b; dot: the sum of b c; gather: a = b[index]; divide: "
        "a = b / c. Each call runs one loop over the next numbers of arrays that fit in the first-level cache, so that "
        "its length is not known to the compiler. The time of a loop of n elements is about (n + h) / r: r is the "
        "rate of long loops, and h the half length, at which half of that rate is reached (Hockney). Long vectors gain "
        "little where h is small.\n"
        "example: meshmark-probe loops --kernel axpy,dot --length 1,4,16,64,256 --isa all",
    .source = "Hockney, Jesshope, Parallel Computers 2 (1988), 1.3.2; Cray X1 study, loop lengths of vector processors",
    .spoils = {"a clock frequency that changes during the measurement"},
    .needs = {},
    .parameters = {mm::choices("kernel", "loops", "copy,triad,axpy,dot,gather,divide",
                               {"copy", "triad", "axpy", "dot", "gather", "divide"}),
                   {"length", "elements of a loop, a list", "", mm::Kind::integers, "1,2,4,8,16,32,64,128,256,512", 1,
                    1024},
                   {"isa",
                    "vector instructions; best: the widest of this processor; all: one after the other",
                    "",
                    mm::Kind::choice,
                    "best",
                    {},
                    {},
                    {"best", "all"}}},
    .metrics = {{"loop_time", "time of one loop", "s", mm::Better::lower},
                {"element_rate", "elements per second", "op/s", mm::Better::higher}},
    .identity = {"kernel", "length", "isa", "cpu"},
};

constexpr std::size_t kElements = 1024;  // per array; three arrays and the index occupy 28 KiB

struct LoopArrays {
  alignas(64) double a[kElements + 8], b[kElements], c[kElements];
  alignas(64) std::int32_t index[kElements];
};

constexpr double kFactor = 1.0 / 1024;

/// A loop over elements first … first + n - 1.
using Loop = double (*)(LoopArrays& arrays, std::size_t first, std::size_t n);

// Each loop is compiled for every instruction set; the baseline has no attribute.
#define MM_LOOPS(NAME, TARGET)                                                                            \
  struct NAME {                                                                                           \
    TARGET [[gnu::noinline]] static double copy(LoopArrays& arrays, std::size_t first, std::size_t n) {   \
      double* __restrict const a = arrays.a + first;                                                      \
      const double* const b = arrays.b + first;                                                           \
      for (std::size_t i = 0; i < n; ++i) a[i] = b[i];                                                    \
      return 0;                                                                                           \
    }                                                                                                     \
    TARGET [[gnu::noinline]] static double triad(LoopArrays& arrays, std::size_t first, std::size_t n) {  \
      double* __restrict const a = arrays.a + first;                                                      \
      const double *const b = arrays.b + first, *const c = arrays.c + first;                              \
      for (std::size_t i = 0; i < n; ++i) a[i] = b[i] + kFactor * c[i];                                   \
      return 0;                                                                                           \
    }                                                                                                     \
    TARGET [[gnu::noinline]] static double axpy(LoopArrays& arrays, std::size_t first, std::size_t n) {   \
      double* __restrict const a = arrays.a + first;                                                      \
      const double* const b = arrays.b + first;                                                           \
      for (std::size_t i = 0; i < n; ++i) a[i] += kFactor * b[i];                                         \
      return 0;                                                                                           \
    }                                                                                                     \
    TARGET [[gnu::noinline]] static double dot(LoopArrays& arrays, std::size_t first, std::size_t n) {    \
      const double *const b = arrays.b + first, *const c = arrays.c + first;                              \
      double sum = 0;                                                                                     \
      _Pragma("omp simd reduction(+ : sum)") for (std::size_t i = 0; i < n; ++i) sum += b[i] * c[i];      \
      return sum;                                                                                         \
    }                                                                                                     \
    TARGET [[gnu::noinline]] static double gather(LoopArrays& arrays, std::size_t first, std::size_t n) { \
      double* __restrict const a = arrays.a + first;                                                      \
      const std::int32_t* const index = arrays.index + first;                                             \
      for (std::size_t i = 0; i < n; ++i) a[i] = arrays.b[index[i]];                                      \
      return 0;                                                                                           \
    }                                                                                                     \
    TARGET [[gnu::noinline]] static double divide(LoopArrays& arrays, std::size_t first, std::size_t n) { \
      double* __restrict const a = arrays.a + first;                                                      \
      const double *const b = arrays.b + first, *const c = arrays.c + first;                              \
      for (std::size_t i = 0; i < n; ++i) a[i] = b[i] / c[i];                                             \
      return 0;                                                                                           \
    }                                                                                                     \
  };
MM_LOOPS(Baseline, )
#if defined(__x86_64__)
MM_LOOPS(Avx2, [[gnu::target("avx2,fma")]])
MM_LOOPS(Avx512, [[gnu::target("avx512f,avx512dq,avx512vl,fma,prefer-vector-width=512")]])
#endif

template <class Loops>
Loop loop_of(const std::string& kernel) {
  if (kernel == "copy") return Loops::copy;
  if (kernel == "triad") return Loops::triad;
  if (kernel == "axpy") return Loops::axpy;
  if (kernel == "dot") return Loops::dot;
  return kernel == "gather" ? Loops::gather : Loops::divide;
}

Loop loop_of(const std::string& kernel, std::string_view isa) {
#if defined(__x86_64__)
  if (isa == "avx512") return loop_of<Avx512>(kernel);
  if (isa == "avx2") return loop_of<Avx2>(kernel);
#endif
  static_cast<void>(isa);
  return loop_of<Baseline>(kernel);
}

void fill(LoopArrays& arrays) {
  for (std::size_t i = 0; i < kElements; ++i) {
    const auto x = static_cast<double>(i);
    arrays.a[i] = 3 + x / 512, arrays.b[i] = 1 + x / 256, arrays.c[i] = 2 + x / 128;
    arrays.index[i] = static_cast<std::int32_t>(i * 389 % kElements);  // each index occurs once
  }
  std::fill(arrays.a + kElements, arrays.a + kElements + 8, -1.0);
}

/// Returns whether a loop from element 3 computes the expected values and changes nothing else.
bool right(Loop loop, const std::string& kernel, std::size_t n) {
  const auto result = std::make_unique<LoopArrays>(), before = std::make_unique<LoopArrays>();
  fill(*result), fill(*before);
  const std::size_t first = n + 3 <= kElements ? 3 : 0;
  const double sum = loop(*result, first, n);
  double expected_sum = 0;
  for (std::size_t i = 0; i < kElements + 8; ++i) {
    double expected = before->a[i];
    if (i >= first && i < first + n) {
      const double b = before->b[i], c = before->c[i];
      if (kernel == "copy") expected = b;
      if (kernel == "triad") expected = b + kFactor * c;
      if (kernel == "axpy") expected += kFactor * b;
      if (kernel == "gather") expected = before->b[before->index[i]];
      if (kernel == "divide") expected = b / c;
      expected_sum += b * c;
    }
    if (std::fabs(result->a[i] - expected) > 1e-15 * std::fabs(expected)) return false;
  }
  return kernel != "dot" || std::fabs(sum - expected_sum) <= 1e-13 * expected_sum;
}

void add_point(std::vector<mm::Point>& points, const std::shared_ptr<LoopArrays>& arrays, const std::string& kernel,
               std::size_t n, std::string_view isa, int cpu) {
  const Loop loop = loop_of(kernel, isa);
  // The next loop starts at a full cache line, so that all loops of a length have the same alignment.
  const std::size_t step = (n + 7) / 8 * 8, calls_per_pass = std::max<std::size_t>(1, kElements / step);
  const auto calls = std::make_shared<std::uint64_t>(0);
  const auto work = [=](std::uint64_t count) {
    LoopArrays& data = *arrays;
    double total = 0;
    const mm::Ticks begin = mm::ticks();
    for (std::uint64_t i = 0, place = 0; i < count; ++i) {
      total += loop(data, place * step, n);
      if (++place == calls_per_pass) place = 0;
    }
    mm::keep(total);
    return mm::seconds(mm::ticks() - begin);
  };
  mm::Point p;
  p.conditions = {{"kernel", kernel},
                  {"length", n},
                  {"isa", isa},
                  {"cpu", cpu},
                  {"array_bytes", kElements * 8},
                  {"compiler", mm::kCompilerVersion}};
  p.metrics = {"loop_time", "element_rate"};
  p.cpu = cpu;
  p.width_of_first_only = true;
  p.prepare = [=] {
    fill(*arrays);
    if (*calls == 0) *calls = mm::iterations_for(2e-3, work, 64);
  };
  p.burst = [=] {
    const double loop_s = work(*calls) / static_cast<double>(*calls);
    return mm::Values{loop_s, static_cast<double>(n) / loop_s};
  };
  p.check = [=]() -> std::vector<std::string> {
    return right(loop, kernel, n) ? std::vector<std::string>{} : std::vector<std::string>{"unverified"};
  };
  points.push_back(std::move(p));
}

void measure(mm::Run& run) {
  const auto arrays = std::make_shared<LoopArrays>();
  std::vector<std::string_view> sets;
  for (const std::string_view isa : mm::built_isas())
    if (mm::has_isa(isa) && (run.text("isa") == "all" || isa == mm::best_isa())) sets.push_back(isa);
  std::vector<mm::Point> points;
  for (const std::string_view isa : sets)
    for (const std::string& kernel : run.choices("kernel"))
      for (const int n : run.integers("length", 1024))
        for (const int cpu : run.single_cpus())
          add_point(points, arrays, kernel, static_cast<std::size_t>(n), isa, cpu);
  run.measure(std::move(points));
}

const mm::Instrument loops{kLoops, measure};

}  // namespace
