#include "kernels/stream.hpp"

#include "instruments/memory/stream_workers.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

struct alignas(64) Line {
  double d[8];
};

double expected(mm::StreamKernel kernel, double a, double b, double c, double s) {
  switch (kernel) {
    case mm::StreamKernel::copy:
      return b;
    case mm::StreamKernel::scale:
      return s * b;
    case mm::StreamKernel::add:
      return b + c;
    case mm::StreamKernel::triad:
      return b + s * c;
    case mm::StreamKernel::write:
      return s;
    case mm::StreamKernel::update:
      return s * a;
    default:
      return a;
  }
}

// Every kernel against its definition, for lengths that do and do not fill the unrolled loop, with no write beyond.
TEST(Stream, EveryKernelOfEveryWidthMatchesItsDefinition) {
  for (std::string_view isa : mm::built_isas()) {
    if (!mm::has_isa(isa)) continue;
    const mm::StreamTable* table = mm::stream_table(isa);
    ASSERT_NE(table, nullptr) << isa;
    for (std::size_t n : {1u, 7u, 8u, 31u, 32u, 33u, 64u, 1000u, 1023u}) {
      for (std::size_t k = 0; k < 7; ++k)
        for (const int variant : {0, 1, 2}) {
          std::vector<Line> a(140), b(140), c(140);
          double *x = a[0].d, *y = b[0].d, *z = c[0].d;
          for (std::size_t i = 0; i < 1120; ++i)
            x[i] = static_cast<double>(i), y[i] = 2.0 * static_cast<double>(i), z[i] = 5;
          const auto f = (variant == 0 ? table->ordinary : variant == 1 ? table->streaming : table->ahead)[k];
          const double sum = f(x, y, z, n, 3);
          const auto kernel = static_cast<mm::StreamKernel>(k);
          if (kernel == mm::StreamKernel::read) {
            EXPECT_EQ(sum, static_cast<double>(n) * static_cast<double>(n - 1) / 2) << isa << ' ' << n;
          }
          for (std::size_t i = 0; i < 1120; ++i) {
            const auto at = static_cast<double>(i);
            ASSERT_EQ(x[i], i < n ? expected(kernel, at, 2 * at, 5, 3) : at)
                << isa << ' ' << mm::kStreamShapes[k].name << " n " << n << " i " << i;
          }
        }
    }
  }
}

TEST(Stream, BestIsaIsSupportedByTheProcessor) {
  EXPECT_TRUE(mm::has_isa(mm::best_isa()));
  EXPECT_FALSE(mm::has_isa("mmx"));
}

// An interruption while the clock is measured once made every result absent.
TEST(Stream, InterruptedClockMeasurementsAreRepeated) {
  int trials = 0;
  const auto interrupted_twice = [&] { return ++trials <= 2 ? 1e7 : 3e9; };
  EXPECT_FALSE(mm::beyond_ports(200e9, 32, interrupted_twice));
  EXPECT_EQ(trials, 3);
  EXPECT_TRUE(mm::beyond_ports(2000e9, 32, [] { return 3e9; })) << "more than six vectors per cycle";
}

double wide(double*, const double*, const double*, std::size_t, double) { return 0; }
double narrow(double*, const double*, const double*, std::size_t, double) { return 1; }
double broken(double*, const double*, const double*, std::size_t, double) { return 2; }

/// Workers that take a given time for every element, and whose results of `broken` are wrong.
mm::stream::Workers workers_with(double wide_s, double narrow_s, double broken_s) {
  mm::stream::Workers w;
  w.work = [=](const mm::stream::StreamTask& job, std::uint64_t passes) {
    const double each_s = job.function == wide ? wide_s : job.function == narrow ? narrow_s : broken_s;
    EXPECT_EQ(job.first % 8, 0U);
    EXPECT_LE(job.first + job.n, 1U << 20);
    return each_s * static_cast<double>(job.n * passes);
  };
  w.fill = [](const mm::stream::StreamTask&) {};
  w.correct = [](const mm::stream::StreamTask& job, std::uint64_t) { return job.function != broken; };
  return w;
}

std::string_view chosen(double wide_s, double narrow_s, double broken_s) {
  const mm::stream::StreamTask job{mm::StreamKernel::copy, wide, 1 << 20, 3.0};
  return mm::stream::fastest({{"wide", wide, false}, {"narrow", narrow, false}, {"broken", broken, false}}, job,
                             workers_with(wide_s, narrow_s, broken_s))
      .isa;
}

// On some processors the widest streaming stores lose a fifth against narrower ones.
TEST(Stream, TheFastestFormIsChosenNotTheWidest) {
  EXPECT_EQ(chosen(1.2e-9, 1.0e-9, 2e-9), "narrow");
  EXPECT_EQ(chosen(1.0e-9, 1.2e-9, 2e-9), "wide");
}

TEST(Stream, AmongEquallyFastFormsTheWidestIsChosen) { EXPECT_EQ(chosen(1.02e-9, 1.0e-9, 2e-9), "wide"); }

TEST(Stream, AFormWithWrongResultsIsNotChosen) { EXPECT_EQ(chosen(1.2e-9, 1.0e-9, 0.5e-9), "narrow"); }

TEST(Stream, FormsAreOrderedFromWideToNarrowAndOnlyStreamingOnesPrefetch) {
  const auto isas = mm::built_isas();
  const auto ordinary = mm::stream::forms_of(mm::StreamKernel::copy, false, isas);
  ASSERT_EQ(ordinary.size(), isas.size());
  for (std::size_t i = 0; i < isas.size(); ++i) EXPECT_EQ(ordinary[i].isa, isas[isas.size() - 1 - i]);
  EXPECT_EQ(mm::stream::forms_of(mm::StreamKernel::copy, true, isas).size(), 2 * isas.size());
  EXPECT_EQ(mm::stream::forms_of(mm::StreamKernel::update, true, isas).size(), isas.size());
}

}  // namespace
