#include "base/options/options.hpp"

#include <gtest/gtest.h>

#include <clocale>
#include <random>

#include "base/error.hpp"

namespace {

TEST(Size, ReadsBinaryAndDecimalUnits) {
  EXPECT_EQ(mm::parse_size("f", "512KiB"), 524288u);
  EXPECT_EQ(mm::parse_size("f", "64MB"), 64'000'000u);
  EXPECT_EQ(mm::parse_size("f", "1.5GiB"), 1610612736u);
  EXPECT_EQ(mm::parse_size("f", "64"), 64u);
}

TEST(Size, KnowsEveryUnit) {
  const std::pair<const char*, std::size_t> sizes[] = {
      {"0", 0},
      {"3B", 3},
      {"2K", 2048},
      {"2KiB", 2048},
      {"2kB", 2000},
      {"2KB", 2000},
      {"2M", 2u << 20},
      {"2MiB", 2u << 20},
      {"2MB", 2'000'000},
      {"2G", std::size_t{2} << 30},
      {"2GiB", std::size_t{2} << 30},
      {"2GB", 2'000'000'000},
      {"2TiB", std::size_t{2} << 40},
      {"2TB", 2'000'000'000'000},
      {"64k", 65536},
      {"64Ki", 65536},
      {"64kiB", 65536},
      {"2m", 2u << 20},
      {"2Mi", 2u << 20},
      {"1g", 1u << 30},
      {"1Gi", 1u << 30},
      {"1.5gib", 3u << 29},
      {"1t", std::size_t{1} << 40},
      {"1024TiB", std::size_t{1} << 50},
  };
  for (const auto& [text, bytes] : sizes) EXPECT_EQ(mm::parse_size("f", text), bytes) << text;
  EXPECT_THROW(mm::parse_size("f", "1025TiB"), mm::UsageError);
}

TEST(Size, RefusesWhatIsNoSizeAndNamesTheField) {
  for (const char* text : {"", "-1", "1XB", "GiB", "1e99", "nan", "inf", "1 KiB", " 1", "0x10q", "9999999TiB", "0.5",
                           "64kb", "1mb", "1Kib2", "1b"}) {
    try {
      mm::parse_size("footprint_bytes", text);
      ADD_FAILURE() << "took '" << text << "'";
    } catch (const mm::UsageError& e) {
      EXPECT_EQ(e.field, "footprint_bytes");
      EXPECT_FALSE(e.allowed.empty());
    }
  }
}

TEST(Sizes, RangesDoubleAndMayBeFiner) {
  EXPECT_EQ(mm::parse_sizes("f", "1KiB..8KiB"), (std::vector<std::size_t>{1024, 2048, 4096, 8192}));
  EXPECT_EQ(mm::parse_sizes("f", "4KiB..10KiB"), (std::vector<std::size_t>{4096, 8192, 10240})) << "including the end";
  EXPECT_EQ(mm::parse_sizes("f", "1MiB..2MiB/2").size(), 3u);
  EXPECT_EQ(mm::parse_sizes("f", "1GiB..2GiB/64").size(), 65u);
  EXPECT_THROW(mm::parse_sizes("f", "1GiB..2GiB/65"), mm::UsageError);
  EXPECT_EQ(mm::parse_sizes("f", "8..128"), (std::vector<std::size_t>{8, 16, 32, 64, 128}));
  EXPECT_EQ(mm::parse_sizes("f", "48..100"), (std::vector<std::size_t>{48, 100})) << "nothing beyond an end";
  EXPECT_EQ(mm::parse_sizes("f", "3000001..3100000"), (std::vector<std::size_t>{3000001, 3100000}));
  EXPECT_EQ(mm::parse_sizes("f", "3KiB,1KiB"), (std::vector<std::size_t>{1024, 3072}));
  EXPECT_THROW(mm::parse_sizes("f", "8KiB..1KiB"), mm::UsageError);
  EXPECT_THROW(mm::parse_sizes("f", "0..1KiB"), mm::UsageError);
}

TEST(Sizes, MayBeOneOrARangeOfOne) {
  EXPECT_EQ(mm::parse_sizes("f", "0"), (std::vector<std::size_t>{0}));
  EXPECT_EQ(mm::parse_sizes("f", "1KiB..1KiB"), (std::vector<std::size_t>{1024}));
  EXPECT_EQ(mm::parse_sizes("f", "1KiB..4KiB/1"), (std::vector<std::size_t>{1024, 2048, 4096}));
  EXPECT_EQ(mm::parse_sizes("f", "1KiB..2KiB/2"), (std::vector<std::size_t>{1024, 1472, 2048})) << "whole cache lines";
  EXPECT_EQ(mm::parse_sizes("f", "1..4/2"), (std::vector<std::size_t>{1, 2, 3, 4})) << "under one: whole bytes";
  for (const char* text : {"1KiB..2KiB/0", "1KiB..2KiB/-1", "1KiB..2KiB/1.5", "1KiB..", "..1KiB", "1KiB..2KiB/"})
    EXPECT_THROW(mm::parse_sizes("f", text), mm::UsageError) << text;
}

TEST(Integers, AllIsWhatTheMachineHas) {
  EXPECT_EQ(mm::parse_integers("n", "1..all", 6), (std::vector<int>{1, 2, 4, 6}));
  EXPECT_EQ(mm::parse_integers("n", "all", 3), (std::vector<int>{3}));
}

TEST(Integers, ARangeIsByOneOrDoubles) {
  EXPECT_EQ(mm::parse_integers("n", "0-3", 6), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(mm::parse_integers("n", "8,2-all", 4), (std::vector<int>{2, 3, 4, 8}));
  EXPECT_EQ(mm::parse_integers("n", "3..3", 6), (std::vector<int>{3}));
  EXPECT_EQ(mm::parse_integers("n", "0-6:2,9", 6), (std::vector<int>{0, 2, 4, 6, 9}));
  EXPECT_EQ(mm::parse_integers("n", "0-7:2/4", 6), (std::vector<int>{0, 1, 4, 5}));
  for (const char* text : {"-1", "3-1", "0..4", "1-2-3", "1..2..4", "0-99999999", "+1", " 1", "0x1", "1e1", "1."})
    EXPECT_THROW(mm::parse_integers("n", text, 6), mm::UsageError) << text;
}

TEST(Integers, HaveALimitAndSoHaveTheirRanges) {
  EXPECT_EQ(mm::parse_integers("n", "0,16777216", 6), (std::vector<int>{0, 1 << 24}));
  EXPECT_THROW(mm::parse_integers("n", "16777217", 6), mm::UsageError);
  EXPECT_EQ(mm::parse_integers("n", "1-65537", 6).size(), 65537u);
  EXPECT_THROW(mm::parse_integers("n", "1-65538", 6), mm::UsageError);
  EXPECT_EQ(mm::parse_integers("n", "1..16777216", 6).size(), 25u) << "few, however far it reaches";
  EXPECT_EQ(mm::parse_integers("n", "4-4", 6), (std::vector<int>{4}));
}

TEST(Integer, IsWholeAndHasASign) {
  EXPECT_EQ(mm::parse_integer("n", "-12"), -12);
  for (const char* text : {"", "1.0", "1 ", "x", "99999999999999999999"})
    EXPECT_THROW(mm::parse_integer("n", text), mm::UsageError) << text;
}

TEST(Words, AreSplitAndJoined) {
  EXPECT_EQ(mm::split("a,,b", ','), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(mm::split("", ','), (std::vector<std::string>{""}));
  EXPECT_EQ(mm::split("a,", ','), (std::vector<std::string>{"a", ""}));
  EXPECT_EQ(mm::joined({"a", "b", "c"}), "a, b, c");
  EXPECT_EQ(mm::joined({}), "");
}

TEST(Time, ABareNumberIsSeconds) {
  EXPECT_EQ(mm::parse_time("t", "2"), 2.0);
  EXPECT_EQ(mm::parse_time("t", "250us"), 250e-6);
  EXPECT_EQ(mm::parse_time("t", "1.5m"), 90.0);
  for (const char* text : {"", "s", "1 s", "1d", "-1s", "1e999s", "nan", "0x1s"})
    EXPECT_THROW(mm::parse_time("t", text), mm::UsageError) << text;
}

TEST(Time, KnowsEveryUnit) {
  const std::pair<const char*, double> times[] = {{"2s", 2},     {"2ms", 2e-3}, {"2us", 2e-6},
                                                  {"2ns", 2e-9}, {"2m", 120},   {"2min", 120},
                                                  {"2h", 7200},  {"0", 0},      {"1e3s", 1000}};
  for (const auto& [text, time_s] : times) EXPECT_DOUBLE_EQ(mm::parse_time("t", text), time_s) << text;
}

TEST(Real, IsFinite) {
  EXPECT_EQ(mm::parse_real("r", "-1.5e3"), -1500);
  for (const char* text : {"nan", "inf", "-inf", "", "1x", "0x1"})
    EXPECT_THROW(mm::parse_real("r", text), mm::UsageError) << text;
}

// Where a program sets the locale of its user, a decimal comma must not turn 1.5 into 1.
TEST(Real, NoLocaleChangesWhatIsRead) {
  const char* const locale = std::setlocale(LC_NUMERIC, "de_DE.UTF-8");
  EXPECT_EQ(mm::parse_real("r", "1.5"), 1.5) << (locale ? locale : "without a locale that has a comma");
  EXPECT_THROW(mm::parse_real("r", "1,5"), mm::UsageError);
  std::setlocale(LC_NUMERIC, "C");
}

TEST(CpuList, HasStridesAndExclusions) {
  const std::vector<int> all = {0, 1, 2, 3, 88, 89};
  const std::pair<const char*, const char*> lists[] = {
      {"0-6:2", "0,2,4,6"},
      {"0-31:2/16", "0-1,16-17"},
      {"0-7:3/4,9", "0-2,4-6,9"},
      {"0-5:1/1", "0-5"},
      {"4-12,^8", "4-7,9-12"},
      {"0-7,^2-3", "0-1,4-7"},
      {"0-3, 8", "0-3,8"},
      {"3,1,2", "1-3"},
      {"all", "0-3,88-89"},
      {"N", "89"},
      {"2-N", "2-89"},
      {"all,^88-89", "0-3"},
      {"0-7:2,^4", "0,2,6"},
      {"1048576", "1048576"},
  };
  for (const auto& [text, expected] : lists)
    EXPECT_EQ(mm::cpu_list(mm::parse_cpu_list("cpus", text, all)), expected) << text;
  EXPECT_EQ(mm::parse_cpu_sequence("cpus", "8,0-4:2"), (std::vector<int>{8, 0, 2, 4})) << "in the order given";
  for (const char* text :
       {"^8", "4-12,^20", "^8,4-12", "4-12,^8,8", "0-3:0", "0-3:2/1", "0-3:/2", "0:2", "0-3:a", "1-", "all", "N",
        "0-3,^0-3", "!0", "+0", "0-1048577", "0-99999999999999", "0-99999999999999999999"})
    EXPECT_THROW(mm::parse_cpu_list("cpus", text), mm::UsageError) << text;
}

// A list of a few bytes must not cost seconds, whether it is taken or refused.
TEST(CpuList, IsCountedBeforeItIsBuilt) {
  std::string many = "0-1048576";
  for (int i = 0; i < 1000; ++i) many += ",0-1048576";
  EXPECT_THROW(mm::parse_cpu_list("cpus", many), mm::UsageError);
  std::string excluded = "0-1048575";
  for (int i = 0; i < 100000; ++i) excluded += ",^" + std::to_string(i);
  EXPECT_EQ(mm::parse_cpu_list("cpus", excluded).size(), 1048576u - 100000u);
}

TEST(CpuList, SurvivesTheWayThereAndBack) {
  EXPECT_EQ(mm::parse_cpu_list("cpus", "0-3,8"), (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_EQ(mm::cpu_list({0, 1, 2, 3, 8}), "0-3,8");
  for (const char* text : {"", "a", "3-1", "-1", "1,,2", "0-99999999999"})
    EXPECT_THROW(mm::parse_cpu_list("cpus", text), mm::UsageError) << text;
}

// For any input, a parser returns a value or throws a usage error.
TEST(Parsers, NeverDieOfNonsense) {
  std::mt19937_64 random{1};
  const std::string letters = "0123456789.,-/KMGTiBsnm ae+x";
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (auto n = random() % 10; n > 0; --n) text += letters[random() % letters.size()];
    for (auto parse :
         {+[](const std::string& t) { mm::parse_sizes("f", t); }, +[](const std::string& t) { mm::parse_time("f", t); },
          +[](const std::string& t) { mm::parse_integers("f", t, 4); },
          +[](const std::string& t) { mm::parse_real("f", t); }})
      try {
        parse(text);
      } catch (const mm::UsageError&) {}
  }
}

}  // namespace
