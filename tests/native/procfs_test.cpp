// The placer and the scenario runner share one parser of /proc/PID/stat, which must refuse truncated texts.
#include "sys/procfs.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

namespace mm {
namespace {

const std::string kStat =
    "42 (a) b (c)) R 7 42 42 0 -1 4194304 100 0 0 0 123 45 0 0 20 0 3 0 98765 1000 50 18446744073709551615 1 1 0 0 0 0 "
    "0 "
    "0 0 0 0 0 17 5 0 0 0 0 0\n";

TEST(Procfs, ParsesTheStatOfATaskWhoseCommandHasParentheses) {
  const auto stat = parse_stat(kStat);
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->command, "a) b (c)");
  EXPECT_EQ(stat->state, 'R');
  EXPECT_EQ(stat->parent, 7);
  EXPECT_EQ(stat->user, 123u);
  EXPECT_EQ(stat->system, 45u);
  EXPECT_EQ(stat->threads, 3u);
  EXPECT_EQ(stat->started, 98765u);
  EXPECT_EQ(stat->cpu, 5);
}

TEST(Procfs, RefusesEveryTruncatedStat) {
  const std::size_t cpu = kStat.find(" 17 5 ") + 4;
  for (std::size_t n = 0; n <= cpu; ++n) EXPECT_FALSE(parse_stat(kStat.substr(0, n))) << n;
  for (const char* text : {")(", ") (", "1 () ", "1 (a) S x"}) EXPECT_FALSE(parse_stat(text)) << text;
}

TEST(Procfs, ParsesTheStatOfThisProcess) {
  std::ifstream file("/proc/self/stat");
  const auto stat = parse_stat(std::string(std::istreambuf_iterator<char>(file), {}));
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->parent, getppid());
  EXPECT_GE(stat->cpu, 0);
}

}  // namespace
}  // namespace mm
