#include "base/harness/provenance.hpp"

#include <gtest/gtest.h>

#include <string>

// A record without its build cannot be reproduced, so all of these are required.
TEST(Provenance, NamesVersionCompilerAndFlags) {
  EXPECT_NE(std::string(mm::kBuild).find('.'), std::string::npos);
  EXPECT_GT(std::string(mm::kCompiler).find(" -O"), 0U);
  EXPECT_NE(std::string(mm::kCompiler).find(" -O"), std::string::npos);
}

// One build runs on every node of a fleet; -march=native would crash with SIGILL on an older one.
TEST(Provenance, IsForTheBaselineProcessor) { EXPECT_EQ(std::string(mm::kCompiler).find("-march"), std::string::npos); }
