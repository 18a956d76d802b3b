/// Which kind of stores another binary used, from its rates and ours.
#include "instruments/memory/store_diagnosis.hpp"

#include <gtest/gtest.h>

namespace mm {
namespace {

/// Rates in GB/s with this half width of their intervals, as a share.
StreamRates rates(double two, double three, double half = 0.005) {
  const auto of = [&](double value) {
    return MedianRate{value * 1e9, value * 1e9 * (1 - half), value * 1e9 * (1 + half)};
  };
  return {{"copy", of(two)}, {"scale", of(two)}, {"add", of(three)}, {"triad", of(three)}};
}

std::map<std::string, double> reported(double copy, double scale, double add, double triad) {
  return {{"copy", copy * 1e9}, {"scale", scale * 1e9}, {"add", add * 1e9}, {"triad", triad * 1e9}};
}

/// A memory of 48 GB/s: ordinary stores leave two of three and three of four operands.
const StoreRates kOurs{rates(32, 36), rates(48, 48), {}};

TEST(StoreDiagnosis, TheRatioDecidesHoweverFastTheOtherRunWas) {
  for (const double speed : {0.3, 1.0}) {
    const auto ordinary = diagnose_stores(reported(32 * speed, 32.2 * speed, 36 * speed, 36.1 * speed), kOurs);
    EXPECT_EQ(ordinary.verdict, "ordinary stores") << ordinary.reason;
    EXPECT_NEAR(ordinary.other.value, 8.0 / 9, 0.01);
    EXPECT_LT(ordinary.ordinary.high, ordinary.streaming.low);
    const auto streaming = diagnose_stores(reported(40 * speed, 40.1 * speed, 40 * speed, 39.9 * speed), kOurs);
    EXPECT_EQ(streaming.verdict, "streaming stores") << streaming.reason;
  }
}

// Four equal rates are what streaming stores give, or a core that is the bottleneck, but not ordinary stores.
TEST(StoreDiagnosis, FourEqualRatesAreNotOrdinaryStores) {
  EXPECT_NE(diagnose_stores(reported(12.0, 12.0, 12.1, 12.0), kOurs).verdict, "ordinary stores");
  // Where our own rates are alike with both kinds of stores, it cannot be told.
  const StoreRates alike{rates(12, 12), rates(12.05, 12), {}};
  const auto found = diagnose_stores(reported(12.0, 12.0, 12.1, 12.0), alike);
  EXPECT_EQ(found.verdict, "cannot tell");
  EXPECT_NE(found.reason.find("no difference"), std::string::npos);
}

TEST(StoreDiagnosis, RatesAboveThoseOfOrdinaryStoresAreEvidence) {
  EXPECT_EQ(diagnose_stores(reported(47, 47, 47, 47), kOurs).reason,
            "the ratio matches, and the rates exceed what ordinary stores reach here");
  const auto contradiction = diagnose_stores(reported(40, 40, 45, 45), kOurs);
  EXPECT_EQ(contradiction.verdict, "cannot tell");
  EXPECT_NE(contradiction.reason.find("exceed"), std::string::npos);
  EXPECT_EQ(diagnose_stores(reported(33, 33, 37.1, 37.1), kOurs).verdict, "ordinary stores") << "within five per cent";
}

TEST(StoreDiagnosis, WhatIsBetweenOrBesideBothCannotBeTold) {
  EXPECT_NE(diagnose_stores(reported(20, 20, 40, 40), kOurs).reason.find("neither"), std::string::npos);
  const StoreRates wide{rates(32, 36, 0.025), rates(48, 48, 0.025), {}};
  const auto between = diagnose_stores(reported(37.8, 37.8, 40, 40), wide);
  EXPECT_EQ(between.verdict, "cannot tell");
  EXPECT_NE(between.reason.find("between"), std::string::npos) << between.reason;
  const StoreRates wider{rates(32, 36, 0.05), rates(48, 48, 0.05), {}};
  EXPECT_NE(diagnose_stores(reported(32, 32, 36, 36), wider).reason.find("no difference"), std::string::npos);
}

TEST(StoreDiagnosis, NeedsAKernelOfEitherKindAndSamples) {
  EXPECT_NE(diagnose_stores({{"copy", 1e9}, {"scale", 1e9}}, kOurs).reason.find("needs"), std::string::npos);
  EXPECT_EQ(diagnose_stores({{"scale", 32e9}, {"triad", 36e9}}, kOurs).verdict, "ordinary stores");
  StoreRates few = kOurs;
  few.streaming["copy"].low = 0;
  EXPECT_NE(diagnose_stores(reported(32, 32, 36, 36), few).reason.find("too few"), std::string::npos);
  few.streaming.clear();
  EXPECT_EQ(diagnose_stores(reported(32, 32, 36, 36), few).verdict, "cannot tell");
}

TEST(StoreDiagnosis, FlaggedRatesDecideNothing) {
  StoreRates flagged = kOurs;
  flagged.flags = {"disturbed", "stolen"};
  const auto found = diagnose_stores(reported(32, 32, 36, 36), flagged);
  EXPECT_EQ(found.verdict, "cannot tell");
  EXPECT_EQ(found.reason, "our own rates are flagged: disturbed, stolen");
}

// The budget may end before some kernels: the same kernels are compared on all sides.
TEST(StoreDiagnosis, KernelsThatWeDidNotMeasureDoNotCount) {
  StoreRates fewer = kOurs;
  fewer.streaming.erase("scale");
  EXPECT_EQ(diagnose_stores(reported(32, 99, 36, 36), fewer).verdict, "ordinary stores");
  fewer.ordinary.erase("copy");
  EXPECT_NE(diagnose_stores(reported(32, 32, 36, 36), fewer).reason.find("lack"), std::string::npos);
}

TEST(StoreDiagnosis, AllConditionsMustAgree) {
  const auto ordinary = diagnose_stores(reported(32, 32, 36, 36), kOurs),
             streaming = diagnose_stores(reported(40, 40, 40, 40), kOurs);
  EXPECT_EQ(common_diagnosis({ordinary, ordinary}).verdict, "ordinary stores");
  EXPECT_EQ(common_diagnosis({ordinary, streaming}).verdict, "cannot tell");
  EXPECT_EQ(common_diagnosis({}).verdict, "cannot tell");
}

}  // namespace
}  // namespace mm
