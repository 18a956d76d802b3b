/// Readers of the operating system's files, and parsers of their content.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "sys/files.hpp"
#include "sys/words.hpp"

namespace {

using namespace mm;

TEST(Words, ListsOfIdsAreReadAndNonsenseIsNone) {
  EXPECT_EQ(ids_of("0-2,5,7-8"), (std::vector<int>{0, 1, 2, 5, 7, 8}));
  for (const char* invalid : {"", "a", "3-1", "-1", "1,,2", "0-99999999999", "1-", "9223372036854775807"})
    EXPECT_TRUE(ids_of(invalid).empty()) << invalid;
  EXPECT_EQ(ids_of("0-65535").size(), 65536U);
  EXPECT_TRUE(ids_of("0-65536").empty());
}

TEST(Words, WordsAndLinesAreCutWithoutCopies) {
  std::string_view text = "cpu0  1 22\t3\n\nlast";
  std::string_view line = next_line(text);
  EXPECT_EQ(next_word(line), "cpu0");
  EXPECT_EQ(whole_number(next_word(line)), 1);
  EXPECT_EQ(whole_number(next_word(line)), 22);
  EXPECT_EQ(whole_number(next_word(line)), 3);
  EXPECT_EQ(next_word(line), "");
  EXPECT_EQ(next_line(text), "");
  EXPECT_EQ(next_line(text), "last");
  EXPECT_TRUE(text.empty());
  EXPECT_EQ(whole_number("12x", -7), -7);
  EXPECT_EQ(whole_number("99999999999999999999", -7), -7);
}

TEST(Files, AFileIsReadAgainAsItIsNow) {
  const std::string path = std::filesystem::temp_directory_path() / ("mm-watch-" + std::to_string(::getpid()));
  std::ofstream(path) << std::string(10000, 'x') << "end";
  KernelFile file(path);
  EXPECT_EQ(file.text().size(), 10003U);
  EXPECT_EQ(file.text().substr(10000), "end");
  std::ofstream(path) << "short";
  EXPECT_EQ(file.text(), "short");
  std::filesystem::remove(path);
  KernelFile missing(path);
  EXPECT_FALSE(missing);
  EXPECT_EQ(missing.text(), "");
}

TEST(Files, ValuesAndNumbersOfSmallFilesAreRead) {
  const std::string path = std::filesystem::temp_directory_path() / ("mm-files-" + std::to_string(::getpid()));
  std::ofstream(path) << "always [madvise] never \nmore\n";
  EXPECT_EQ(first_line(path), "always [madvise] never");
  EXPECT_EQ(read_text(path).size(), 29U);
  EXPECT_EQ(number_in(path, -7), -7);
  std::ofstream(path) << "42\n";
  EXPECT_EQ(number_in(path, -7), 42);
  std::ofstream(path) << "\n";
  EXPECT_EQ(first_line(path), "");
  std::filesystem::remove(path);
  EXPECT_EQ(first_line(path), "");
  EXPECT_EQ(number_in(path, -7), -7);
}

TEST(Words, ValuesAreFoundByTheKeyThatBeginsALine) {
  constexpr std::string_view kStatus = "Name:\tx\nMems_allowed:\t1\nMems_allowed_list:\t0-3\nEmpty:\n";
  EXPECT_EQ(value_of(kStatus, "Mems_allowed_list:"), "0-3");
  EXPECT_EQ(value_of(kStatus, "allowed:"), "");
  EXPECT_EQ(value_of(kStatus, "Empty:"), "");
  EXPECT_EQ(leading_number("123kB"), 123U);
  EXPECT_EQ(leading_number("x1"), 0U);
  EXPECT_EQ(number_at_end("uncore_upi_3"), 3);
  EXPECT_EQ(number_at_end("uncore"), -1);
}

}  // namespace
