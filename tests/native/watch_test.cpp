/// The sampler's parts: what is read, how it is written, and what a slow reader costs.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "watch/board.hpp"
#include "watch/reading.hpp"
#include "watch/sampler.hpp"

namespace {

using namespace mm::watch;

TEST(Watch, ListsOfCpusAreReadAndNonsenseIsNone) {
  EXPECT_EQ(list_of("0-2,5,7-8"), (std::vector<int>{0, 1, 2, 5, 7, 8}));
  for (const char* wrong : {"", "a", "3-1", "-1", "1,,2", "0-99999999999", "1-"})
    EXPECT_TRUE(list_of(wrong).empty()) << wrong;
  EXPECT_EQ(list_of("0-65535").size(), 65536U);
  EXPECT_TRUE(list_of("0-65536").empty());
}

TEST(Watch, WordsAndLinesAreCutWithoutCopies) {
  std::string_view text = "cpu0  1 22\t3\n\nlast";
  std::string_view line = next_line(text);
  EXPECT_EQ(next_word(line), "cpu0");
  EXPECT_EQ(number(next_word(line)), 1);
  EXPECT_EQ(number(next_word(line)), 22);
  EXPECT_EQ(number(next_word(line)), 3);
  EXPECT_EQ(next_word(line), "");
  EXPECT_EQ(next_line(text), "");
  EXPECT_EQ(next_line(text), "last");
  EXPECT_TRUE(text.empty());
  EXPECT_EQ(number("12x", -7), -7);
  EXPECT_EQ(number("99999999999999999999", -7), -7);
}

TEST(Watch, AFileIsReadAgainAsItIsNow) {
  const std::string path = std::filesystem::temp_directory_path() / ("mm-watch-" + std::to_string(::getpid()));
  std::ofstream(path) << std::string(10000, 'x') << "end";
  File file(path);
  EXPECT_EQ(file.text().size(), 10003U);
  EXPECT_EQ(file.text().substr(10000), "end");
  std::ofstream(path) << "short";
  EXPECT_EQ(file.text(), "short");
  std::filesystem::remove(path);
  File missing(path);
  EXPECT_FALSE(missing);
  EXPECT_EQ(missing.text(), "");
}

TEST(Watch, ARateIsKnownOnlyBetweenTwoValuesThatGrow) {
  Rate rate;
  EXPECT_TRUE(std::isnan(rate.of(10, 1)));
  EXPECT_DOUBLE_EQ(rate.of(30, 3), 10);
  EXPECT_TRUE(std::isnan(rate.of(5, 4)));  // it went back: a counter began anew
  EXPECT_DOUBLE_EQ(rate.of(9, 6), 2);
  EXPECT_TRUE(std::isnan(rate.of(kUnknown, 7)));
  EXPECT_TRUE(std::isnan(rate.of(100, 8)));
  EXPECT_TRUE(std::isnan(rate.of(200, 8)));  // no time has passed
}

TEST(Watch, UnknownIsWrittenAsNullAndNeverAsZero) {
  Board board;
  board.add("cpu", {{"name", "CPU 0"}});
  board.add("cpu", {{"name", "CPU 1"}});
  const auto busy = board.add({"cpu.busy", "1", "busy", "time"}), moved = board.add({"cpu.moved", "B/s", "moved"});
  board.set(busy, 0, 0.123456);
  board.set(moved, 1, 12345678901.9);
  std::string line;
  board.write_values(line);
  EXPECT_EQ(line, R"("values":{"cpu.busy":[0.1235,null],"cpu.moved":[null,12345678901]})");
  board.set(moved, 0, 1e300);
  board.set(moved, 1, -2.5);
  board.forget(busy, busy + 1);
  line.clear();
  board.write_values(line);
  EXPECT_EQ(line, R"("values":{"cpu.busy":[null,null],"cpu.moved":[9000000000000000000,-2.5]})");
  board.set(busy, 7, 1);  // a component that is none
}

TEST(Watch, ASlowReaderLosesWholeLines) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  {
    Outlet out(ends[1]);
    const std::string line(1000, 'a');
    int taken = 0;
    for (int i = 0; i < 200; ++i) taken += out.line(line + "\n");
    EXPECT_EQ(out.dropped(), static_cast<std::uint64_t>(200 - taken));
    EXPECT_GT(out.dropped(), 0U);
    std::string got(1 << 20, '\0');
    const ssize_t n = ::read(ends[0], got.data(), got.size());
    ASSERT_GT(n, 0);
    got.resize(static_cast<std::size_t>(n));
    EXPECT_TRUE(out.line("b\n"));  // the rest of the last line goes first
    got.resize(got.size() + (1 << 16));
    const ssize_t more = ::read(ends[0], got.data() + n, 1 << 16);
    ASSERT_GT(more, 0);
    got.resize(static_cast<std::size_t>(n + more));
    EXPECT_EQ(got.size() % 1001, 2U);
    EXPECT_TRUE(got.ends_with("a\nb\n"));
    ::close(ends[0]);
    std::signal(SIGPIPE, SIG_IGN);
    out.line("c\n");
    EXPECT_TRUE(out.gone());
  }
  ::close(ends[1]);
}

TEST(Watch, EveryMetricIsOfAClassThatIsThere) {
  Settings settings;
  Sampler sampler(settings);
  const mm::json header = sampler.header();
  EXPECT_EQ(header.at("type"), "header");
  EXPECT_GE(header.at("components").at("cpu").size(), 1U);
  for (const auto& metric : header.at("metrics")) {
    const std::string name = metric.at("name");
    EXPECT_TRUE(header.at("components").contains(name.substr(0, name.find('.')))) << name;
  }
}

}  // namespace
