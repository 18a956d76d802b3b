#include "base/options/arguments.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace {

double read_time(std::vector<std::string> arguments, double low_s = 0, double high_s = mm::Arguments::kLongest_s) {
  double value_s = 7;
  mm::Arguments app{"a test"};
  app.time("--duration", value_s, "for so long", low_s, high_s);
  arguments.insert(arguments.begin(), "program");
  std::vector<char*> argv;
  for (std::string& word : arguments) argv.push_back(word.data());
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
  const auto refusal = [](const std::vector<std::string>& arguments) -> std::string {
    try {
      read_time(arguments, 1e-6, 3600);
    } catch (const mm::UsageError& error) {
      return error.field + ": " + error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal({"--duration", "soon"}),
            "options: --duration: found 'soon'; allowed: a time such as 500ms, 10s or 5m");
  EXPECT_EQ(refusal({"--duration", "2h"}), "options: --duration: found '2h'; allowed: 1us to 1h");
  EXPECT_EQ(refusal({"--duration", "1ns"}), "options: --duration: found '1ns'; allowed: 1us to 1h");
  EXPECT_NE(refusal({"--nosuch"}).find("--nosuch"), std::string::npos);
}

}  // namespace
