/// Locations of hwloc, compared with the installed hwloc-calc: equal, or refused.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "base/options/options.hpp"
#include "place/syntax.hpp"
#include "place_layouts.hpp"
#include "temporary_folder.hpp"

namespace {

using namespace mm::place;
using mm::Machine, mm::machine_of;

// Dies, groups, caches of all kinds, two nodes per package, uneven packages, sparse and interleaved numbers, no caches.
const std::vector<std::string> kMachines = {
    "pack:2 core:4 pu:2",
    "pack:2 [numa] l3:2 l2:2 l1d:1 core:2 pu:2(indexes=2*16:1*2)",
    "pack:2 die:2 numa:1 l3:1 core:2 pu:1",
    "group:2 pack:2 numa:2 core:3 pu:1",
    "pack:1 l2:3 core:2 pu:4",
    "numa:4 core:1 pu:1(indexes=9,8,20,3)",
    "pack:3 numa:1 l2:2 l1i:1 core:1 pu:2",
    "group:2 group:2 pack:1 core:2 pu:2",
    "core:6 pu:1",
    "pack:2 [numa] [numa] core:2 pu:2",
};

std::vector<std::string> locations() {
  std::vector<std::string> all = {"all",
                                  "root",
                                  "0x3",
                                  "0x3 ~pu:0",
                                  "core:0-1 xcore:1",
                                  "core:all ^core:0",
                                  "all ~core:0",
                                  "0:0",
                                  "1:all.2:0",
                                  "package:all.core:all.pu:0",
                                  "package:0.core:0-1.pu:0",
                                  "numa:all.core:0.pu:all",
                                  "pu:1 ~pu:1 pu:0 core:1"};
  for (const char* level : {"machine", "package", "socket", "die", "group0", "numanode", "node", "l3", "l2cache", "l1",
                            "l1icache", "core", "pu"})
    for (const char* range : {"all", "0", "1", "0-1", "0-", "even", "0:2"})
      all.push_back(std::string(level) + ":" + range);
  for (const auto& [outer, inner] : std::vector<std::pair<std::string, std::string>>{{"package", "core"},
                                                                                     {"package", "pu"},
                                                                                     {"core", "pu"},
                                                                                     {"numa", "core"},
                                                                                     {"numa", "pu"},
                                                                                     {"l3", "core"},
                                                                                     {"l2", "pu"},
                                                                                     {"package", "numa"},
                                                                                     {"die", "core"},
                                                                                     {"group0", "package"},
                                                                                     {"core", "package"},
                                                                                     {"pu", "core"}})
    for (const auto& [i, j] : std::vector<std::pair<std::string, std::string>>{
             {"all", "0"}, {"0", "all"}, {"0-1", "1"}, {"0", "odd"}, {"all", "0-"}, {"even", "even"}, {"0:2", "0:2"}})
      all.push_back(outer + ":" + i + "." + inner + ":" + j);
  return all;
}

/// What hwloc-calc prints for each line of locations; empty without hwloc-calc.
std::vector<std::string> answers_of_hwloc(const std::string& machine, const std::vector<std::string>& lines,
                                          const std::string& options) {
  const TemporaryFolder folder;
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  const std::string call = "timeout 20 hwloc-calc -i '" + machine + "' " + options + " -q --taskset <" +
                           folder.write("locations", text) + " 2>" + folder.path("errors");
  // NOLINTNEXTLINE(bugprone-command-processor): the command contains only words of this test
  std::FILE* const pipe = popen(call.c_str(), "r");
  std::vector<std::string> answers;
  char line[4096];
  while (pipe != nullptr && std::fgets(line, sizeof line, pipe) != nullptr)
    if (std::string(line).starts_with("0x"))  // it also says that it waits for locations
      answers.push_back(std::string(line, std::string(line).find('\n')));
  if (pipe != nullptr) pclose(pipe);
  return answers;
}

// NOLINTNEXTLINE(bugprone-command-processor)
bool has_hwloc_calc() { return std::system("hwloc-calc --version >/dev/null 2>&1") == 0; }

TEST(PlaceLocations, AreThoseOfHwlocCalcOrRefused) {
  if (!has_hwloc_calc()) GTEST_SKIP() << "no hwloc-calc";
  const std::vector<std::string> lines = locations();
  std::size_t equal = 0, refused = 0;
  for (const std::string& described : kMachines) {
    const Machine machine = machine_of(described);
    const std::vector<std::string> answers = answers_of_hwloc(described, lines, "");
    ASSERT_EQ(answers.size(), lines.size()) << described;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const auto expected = mm::parse_mask(answers[i]);
      const std::string error = complaint([&] {
        const Parts parts = parse("hwloc", machine, lines[i]).layout.parts;
        EXPECT_EQ(parts, (Parts{expected.value_or(std::vector<int>{})})) << described << ": " << lines[i];
        ++equal;
      });
      if (error.empty()) continue;
      ++refused;
      EXPECT_EQ(error.find('\n'), std::string::npos) << error;
      // hwloc-calc leaves missing objects out of a set; so a refusal may stand against a set, but not for levels alone.
      if (lines[i].find('.') == std::string::npos && lines[i].ends_with(":all")) {
        EXPECT_FALSE(expected) << described << ": " << lines[i] << ": " << error;
      }
    }
  }
  EXPECT_GE(equal, lines.size() * kMachines.size() / 2) << refused << " refused";
}

TEST(PlaceLocations, PhysicalNumbersAreThoseOfHwlocCalcOrRefused) {
  if (!has_hwloc_calc()) GTEST_SKIP() << "no hwloc-calc";
  const std::vector<std::string> lines = {
      "pu:0",        "pu:0-3",           "pu:8",           "pu:20",         "core:0", "package:1", "numa:1",
      "pu:0-1 pu:3", "package:0.core:0", "package:1.pu:1", "core:all.pu:0", "pu:all", "pu:even"};
  for (const std::string& described : kMachines) {
    const Machine machine = machine_of(described);
    const std::vector<std::string> answers = answers_of_hwloc(described, lines, "--pi");
    ASSERT_EQ(answers.size(), lines.size()) << described;
    for (std::size_t i = 0; i < lines.size(); ++i)
      complaint([&] {
        const Parts parts = parse("hwloc", machine, "--physical " + lines[i]).layout.parts;
        EXPECT_EQ(parts, (Parts{mm::parse_mask(answers[i]).value_or(std::vector<int>{})}))
            << described << ": " << lines[i];
      });
  }
}

TEST(PlaceLocations, AreResolvedWithinEachParent) {
  const Machine machine = machine_of("pack:2 core:4 pu:2");
  const auto cpus = [&](const std::string& text) {
    return mm::cpu_list(parse("hwloc", machine, text).layout.parts[0]);
  };
  EXPECT_EQ(cpus("core:all.pu:0"), "0,2,4,6,8,10,12,14");
  EXPECT_EQ(cpus("package:0-1.core:1"), "2-3,10-11");
  EXPECT_EQ(cpus("package:all.core:3:2.pu:1"), "1,7,9,15") << "wraps in each package";
  EXPECT_EQ(cpus("all ~core:even"), "2-3,6-7,10-11,14-15");
  EXPECT_EQ(cpus("0xf...f,0x3"), "0-1") << "32 and all higher bits, none of which is here";
  EXPECT_EQ(cpus("0xf...f ~0xff"), "8-15");
  EXPECT_EQ(cpus("nodeset=0x1"), "0-15");
  EXPECT_EQ(cpus("--no-smt package:1"), "8,10,12,14");
  EXPECT_EQ(cpus("--no-smt=1 package:1"), "9,11,13,15");
  EXPECT_EQ(cpus("--single core:2"), "4");
  EXPECT_EQ(cpus("hwloc-bind package:1.core:0 -- ./a.out -p 3"), "8-9");
  EXPECT_EQ(cpus("hwloc-bind core:1 ./a.out core:0"), "2-3") << "the command begins at the first other word";
}

TEST(PlaceLocations, WhatIsNotThereIsRefusedAndNamed) {
  const Machine machine = machine_of("pack:2 core:2 pu:1"), two_groups = machine_of("group:2 group:2 core:2 pu:1");
  const struct {
    const Machine& machine;
    const char *text, *part;
  } cases[] = {
      {machine, "l3:1", "no level 'l3'; machine, package, core, pu, numanode"},
      {machine, "hbm:0", "'hbm:0'"},
      {machine, "1:0", "a level by its depth"},
      {machine, "core:4", "4 of the level 'core'; 0-3"},
      {machine, "core:0-9", "4 of the level 'core'"},
      {machine, "core:4:1", "selects no object"},
      {machine, "core:1:0", "selects no object"},
      {machine, "core:2-1", "descends"},
      {machine, "package:all.core:2", "a parent has 2"},
      {machine, "core:0.package:0", "only partly inside its parent"},
      {machine, "core:0.pu", "core:0.pu'"},
      {machine, "core:x", "core:x'"},
      {machine, "core:", "core:'"},
      {machine, "core", "core'"},
      {machine, "core:0,1", "core:0,1'"},
      {machine, "core[fast]:0", "0 of the level 'core[fast]'"},
      {machine, "numa[tier=0]:0", "filter is not supported"},
      {machine, "os=eth0", "a device that this machine does not have"},
      {machine, "pci:0", "devices are not selected by index"},
      {machine, "bridge:0", "'bridge:0'"},
      {machine, "core:0 ~core:0", "selects no CPU"},
      {machine, "0x10", "bit 4 is not a CPU; CPUs 0-3"},
      {machine, "--nodeset 0x2", "bit 1 is not a node"},
      {machine, "--restrict 0x1 core:0", "'--restrict'"},
      {machine, "--physical core:7", "physical number 7"},
      {machine, "core:99999999999", "'core:99999999999'"},
      {two_groups, "group:0", "several levels of the type 'group'"},
  };
  for (const auto& c : cases) {
    const std::string error = complaint([&] { parse("hwloc", c.machine, c.text); });
    EXPECT_NE(error.find(c.part), std::string::npos) << c.text << ": " << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

}  // namespace
