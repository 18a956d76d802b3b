#include "base/arguments.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace {

double read_time(std::vector<std::string> words, double low_s = 0, double high_s = mm::Arguments::kLongest_s) {
  double value_s = 7;
  mm::Arguments app{"a test"};
  app.time("--duration", value_s, "for so long", low_s, high_s);
  words.insert(words.begin(), "program");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  app.read(static_cast<int>(argv.size()), argv.data(), "options");
  return value_s;
}

TEST(Arguments, ATimeIsWrittenAsEverywhere) {
  EXPECT_EQ(read_time({}), 7);
  EXPECT_EQ(read_time({"--duration", "500ms"}), 0.5);
  EXPECT_EQ(read_time({"--duration=2m"}), 120);
  EXPECT_EQ(read_time({"--duration", "3"}), 3);
}

TEST(Arguments, AWrongTimeNamesItsOptionAndWhatIsAllowed) {
  const auto said = [](const std::vector<std::string>& words) -> std::string {
    try {
      read_time(words, 1e-6, 3600);
    } catch (const mm::UsageError& wrong) {
      return wrong.field + ": " + wrong.what();
    }
    return "";
  };
  EXPECT_EQ(said({"--duration", "soon"}),
            "options: --duration: found 'soon', allowed: a time such as 500ms, 10s or 5m");
  EXPECT_EQ(said({"--duration", "2h"}), "options: --duration: found '2h', allowed: 1us to 1h");
  EXPECT_EQ(said({"--duration", "1ns"}), "options: --duration: found '1ns', allowed: 1us to 1h");
  EXPECT_NE(said({"--nosuch"}).find("--nosuch"), std::string::npos);
}

}  // namespace
