#include "build_info.hpp"

#include <gtest/gtest.h>

#include <string>

// A record without its build cannot be repeated, so none of these may be empty.
TEST(BuildInfo, NamesVersionCompilerAndFlags) {
  EXPECT_NE(std::string(MM_VERSION).find('.'), std::string::npos);
  EXPECT_FALSE(std::string(MM_COMPILER).empty());
  EXPECT_NE(std::string(MM_FLAGS).find("-O"), std::string::npos);
}

// One build serves every node of a fleet; -march=native would die with SIGILL on an older one.
TEST(BuildInfo, IsForTheBaselineProcessor) { EXPECT_EQ(std::string(MM_FLAGS).find("-march"), std::string::npos); }
