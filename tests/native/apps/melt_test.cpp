/// The melt of lj: its energy by all pairs, and its bits on any number of threads.
#include "apps/models/melt.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/isa.hpp"

namespace {

using mm::workloads::Melt;

/// A melt on threads of its own, in memory of its own.
class MeltRun {
 public:
  MeltRun(int edge, std::size_t threads, std::string_view isa)
      : threads_(threads), shared_(words(Melt::shared_bytes(edge))) {
    std::vector<std::byte*> own;
    for (std::size_t t = 0; t < threads; ++t) own_.push_back(words(Melt::own_bytes(edge, threads, t)));
    for (auto& memory : own_) own.push_back(reinterpret_cast<std::byte*>(memory.data()));
    melt_ = std::make_unique<Melt>(edge, reinterpret_cast<std::byte*>(shared_.data()), own, isa);
    each([this](std::size_t t) { melt_->begin(t); });
  }
  void run(int steps) {
    each([=, this](std::size_t t) { melt_->run(t, steps); });
  }
  Melt::Totals totals() const {
    Melt::Totals sum;
    for (std::size_t t = 0; t < threads_; ++t) sum += melt_->totals(t);
    return sum;
  }
  const Melt& melt() const { return *melt_; }
  /// Positions are the first that all threads share: four numbers an atom.
  const double* positions() const { return shared_.data(); }

 private:
  static std::vector<double> words(std::size_t bytes) { return std::vector<double>(bytes / sizeof(double) + 1); }
  template <class Work>
  void each(Work work) {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < threads_; ++t) threads.emplace_back([=] { work(t); });
  }

  std::size_t threads_;
  std::vector<double> shared_;
  std::vector<std::vector<double>> own_;
  std::unique_ptr<Melt> melt_;
};

/// Energy of all pairs within the cutoff, without lists.
double potential_of_all(const double* at, std::size_t n, double box) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < i; ++j) {
      double r2 = 0;
      for (std::size_t d = 0; d < 3; ++d) {
        const double apart = at[4 * i + d] - at[4 * j + d];
        r2 += std::pow(apart - box * std::round(apart / box), 2);
      }
      if (r2 < 2.5 * 2.5) sum += 4 * (std::pow(r2, -6) - std::pow(r2, -3));
    }
  return sum;
}

TEST(Melt, BeginsAndGoesOnWithThePublishedEnergies) {
  MeltRun made(20, 2, mm::best_isa());
  const auto n = static_cast<double>(made.melt().atoms());
  const Melt::Totals begun = made.totals();
  EXPECT_EQ(n, 32000);
  EXPECT_NEAR(begun.kinetic / (1.5 * (n - 1)), 1.44, 1e-12);
  EXPECT_NEAR(begun.potential / n, -6.7733681, 1e-7);
  EXPECT_NEAR((begun.kinetic + begun.potential) / n, -4.6134356, 1e-7);
  made.run(100);
  const Melt::Totals after = made.totals();
  // Published for other velocities of the same temperature: total energy -4.6223613, temperature 0.7574531.
  EXPECT_NEAR((after.kinetic + after.potential) / n, -4.6223613, 5e-4);
  EXPECT_NEAR(after.kinetic / (1.5 * (n - 1)), 0.7574531, 0.02);
}

TEST(Melt, ListsEveryPairAndConservesEnergyAndMomentum) {
  for (const int edge : {6, 8}) {
    MeltRun made(edge, 1, mm::best_isa());
    const auto n = static_cast<double>(made.melt().atoms());
    const Melt::Totals begun = made.totals();
    EXPECT_EQ(begun.pairs, 78 * n);  // of a face-centred crystal within 2.8
    for (int part = 0; part < 5; ++part) {
      made.run(17);
      const Melt::Totals now = made.totals();
      const double all = potential_of_all(made.positions(), made.melt().atoms(), edge * std::cbrt(4 / 0.8442));
      EXPECT_NEAR(now.potential, all, 1e-9 * n);
      EXPECT_NEAR((now.kinetic + now.shifted) / (begun.kinetic + begun.shifted), 1, 5e-4);
      for (const double momentum : now.momentum) EXPECT_NEAR(momentum, 0, 1e-11 * n);
    }
    EXPECT_GT(made.melt().lists(), 3);
    EXPECT_FALSE(made.melt().full());
    // 75 to 78 pairs of each atom, in 85 steps
    EXPECT_GT(made.melt().flops(), 85 * n * (21 * 74.0 + 26));
    EXPECT_LT(made.melt().flops(), 85 * n * (21 * 79.0 + 26));
  }
}

TEST(Melt, HasTheSameBitsOnAnyNumberOfThreads) {
  for (const std::string_view isa : mm::built_isas()) {
    if (!mm::has_isa(isa) || isa == "sve") continue;
    MeltRun one(6, 1, isa);
    one.run(60);
    for (const std::size_t threads : {2U, 3U, 7U, 40U}) {
      MeltRun more(6, threads, isa);
      more.run(60);
      EXPECT_EQ(more.totals().digest, one.totals().digest) << threads << " threads, " << isa;
    }
  }
}

TEST(Melt, MovesAtomsAlikeWithAnyVectorInstructions) {
  MeltRun plain(8, 1, "");
  plain.run(40);
  for (const std::string_view isa : mm::built_isas()) {
    if (!mm::has_isa(isa)) continue;
    MeltRun made(8, 1, isa);
    made.run(40);
    EXPECT_NEAR(made.totals().kinetic, plain.totals().kinetic, 1e-8 * plain.totals().kinetic) << isa;
  }
}

}  // namespace
