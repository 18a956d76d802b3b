/// Settings of a placement: LSF's variables, files of the site and the user, and which of them takes precedence.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "place/syntax.hpp"
#include "place_layouts.hpp"

namespace {

using namespace mm::place;
using Environment = std::vector<std::pair<std::string, std::string>>;

TEST(PlaceSettings, LsfsVariablesAreAccepted) {
  const struct {
    Environment environment;
    const char *bind, *from;
  } cases[] = {
      {{}, "", ""},
      {{{"LSB_USER_BIND_JOB", "Y"}}, "balance", "bind: LSB_USER_BIND_JOB"},
      {{{"LSB_USER_BIND_JOB", "n"}}, "none", "bind: LSB_USER_BIND_JOB"},
      {{{"LSB_USER_BIND_JOB", "NONE"}}, "none", "bind: LSB_USER_BIND_JOB"},
      {{{"LSB_USER_BIND_JOB", "pack"}}, "pack", "bind: LSB_USER_BIND_JOB"},
      {{{"BIND_JOB", "USER"}, {"LSB_USER_BIND_JOB", "ANY"}}, "any", "bind: LSB_USER_BIND_JOB"},
      {{{"BIND_JOB", "PACK"}, {"LSB_USER_BIND_JOB", "PACK"}}, "pack", "bind: LSB_USER_BIND_JOB"},
      {{{"BIND_JOB", "BALANCE"}}, "balance", "bind: BIND_JOB"},
      {{{"LSB_USER_BIND_CPU_LIST", "1,2,5,7-9"}}, "list=1,2,5,7-9", "bind: LSB_USER_BIND_CPU_LIST"},
      {{{"LSB_USER_BIND_JOB", "USER_CPU_LIST"}, {"LSB_USER_BIND_CPU_LIST", "4 0"}},
       "list=4,0",
       "bind: LSB_USER_BIND_CPU_LIST"},
      {{{"LSB_BIND_JOB", "BALANCE"}, {"LSB_BIND_CPU_LIST", "0,4"}, {"LSB_USER_BIND_JOB", "BALANCE"}},
       "list=0,4",
       "bind: LSB_BIND_CPU_LIST"},
      {{{"LSB_BIND_JOB", "PACK"}}, "pack", "bind: LSB_BIND_JOB"},
      {{{"LSB_USER_BIND_JOB", "PACK"}, {"MESHMARK_BIND", "compact"}}, "compact", "bind: MESHMARK_BIND"},
      {{{"LSB_USER_BIND_JOB", ""}, {"BIND_JOB", ""}}, "", ""},
      {{{"LSB_EFFECTIVE_RSRCREQ", "select[type == local] order[r15s:pg] rusage[mem=1000.00] span[hosts=1]"}}, "", ""},
      {{{"LSB_EFFECTIVE_RSRCREQ",
         "select[my_affinity[0]] rusage[mem=1] affinity[core(2, same=socket)*1:distribute=pack]"}},
       "affinity[core(2, same=socket)*1:distribute=pack]",
       "bind: LSB_EFFECTIVE_RSRCREQ"},
      {{{"LSB_EFFECTIVE_RSRCREQ", "1*{span[hosts=1] affinity[core(1)]}+2*{affinity[core(1)]}"}},
       "affinity[core(1)]",
       "bind: LSB_EFFECTIVE_RSRCREQ"},
      // LSF ignores BIND_JOB when it schedules by affinity; its decision, and our variables, take precedence.
      {{{"LSB_EFFECTIVE_RSRCREQ", "affinity[core(1)]"}, {"LSB_USER_BIND_JOB", "PACK"}},
       "affinity[core(1)]",
       "bind: LSB_EFFECTIVE_RSRCREQ"},
      {{{"LSB_EFFECTIVE_RSRCREQ", "affinity[core(1)]"}, {"LSB_BIND_CPU_LIST", "0,4"}},
       "list=0,4",
       "bind: LSB_BIND_CPU_LIST"},
      {{{"LSB_EFFECTIVE_RSRCREQ", "affinity[nonsense]"}, {"MESHMARK_BIND", "pack"}}, "pack", "bind: MESHMARK_BIND"},
      {{{"MESHMARK_BIND", "affinity[core(2)]"}}, "affinity[core(2)]", "bind: MESHMARK_BIND"},
  };
  for (const auto& c : cases) {
    const PlacementSettings settings = settings_of_environment(c.environment);
    EXPECT_EQ(settings.bind.value_or(""), c.bind);
    EXPECT_EQ(settings.from, c.from);
    EXPECT_FALSE(settings.kind);
  }
  const PlacementSettings both = settings_of_environment({{"EGO_DEFINE_NCPUS", "threads"}, {"BIND_JOB", "ANY"}});
  EXPECT_EQ(both.kind, SlotKind::threads);
  EXPECT_EQ(both.from, "bind: BIND_JOB; slots: EGO_DEFINE_NCPUS");
  EXPECT_EQ(settings_of_environment({{"EGO_DEFINE_NCPUS", "threads"}, {"MESHMARK_SLOTS", "procs"}}).kind,
            SlotKind::procs);
}

TEST(PlaceSettings, ContradictionsAndNonsenseAreRefused) {
  const std::pair<Environment, const char*> cases[] = {
      {{{"LSB_USER_BIND_JOB", "PACK"}, {"LSB_USER_BIND_CPU_LIST", "0"}}, "contradicts LSB_USER_BIND_CPU_LIST='0'"},
      {{{"LSB_USER_BIND_JOB", "NONE"}, {"LSB_USER_BIND_CPU_LIST", "0"}}, "contradicts LSB_USER_BIND_CPU_LIST='0'"},
      {{{"BIND_JOB", "PACK"}, {"LSB_USER_BIND_JOB", "ANY"}}, "contradicts BIND_JOB='PACK'"},
      {{{"LSB_USER_BIND_CPU_LIST", "0"}, {"LSB_BIND_CPU_LIST", "1"}}, "contradicts LSB_BIND_CPU_LIST='1'"},
      {{{"LSB_BIND_JOB", "NONE"}, {"LSB_BIND_CPU_LIST", "1"}}, "contradicts LSB_BIND_CPU_LIST='1'"},
      {{{"BIND_JOB", "USER_CPU_LIST"}}, "LSB_USER_BIND_CPU_LIST: is not set"},
      {{{"LSB_USER_BIND_JOB", "SPREAD"}}, "LSB_USER_BIND_JOB: found 'SPREAD'"},
      {{{"LSB_USER_BIND_CPU_LIST", "1-"}}, "LSB_USER_BIND_CPU_LIST: found"},
      {{{"EGO_DEFINE_NCPUS", "nodes"}}, "EGO_DEFINE_NCPUS: found 'nodes'"},
      {{{"MESHMARK_BIND", "nonsense"}}, "MESHMARK_BIND: "},
      {{{"MESHMARK_SLOTS", "nonsense"}}, "MESHMARK_SLOTS: "},
      {{{"LSB_EFFECTIVE_RSRCREQ", "affinity[crate(1)]"}}, "LSB_EFFECTIVE_RSRCREQ: found 'crate'"},
      {{{"LSB_EFFECTIVE_RSRCREQ", "rusage[mem=1] affinity[core(1)"}},
       "LSB_EFFECTIVE_RSRCREQ: found 'affinity[core(1)', which"},
      {{{"LSB_EFFECTIVE_RSRCREQ", "1*{affinity[core(1)]}+1*{affinity[core(2)]}"}},
       "select one with --bind or MESHMARK_BIND"},
      {{{"MESHMARK_BIND", "affinity[crate]"}}, "MESHMARK_BIND: found 'crate'"},
  };
  for (const auto& [environment, words] : cases) {
    const std::string text = complaint([&, &e = environment] { settings_of_environment(e); });
    EXPECT_NE(text.find(words), std::string::npos) << text << "\nwanted: " << words;
  }
}

// A separate home and site, without the settings of the user who runs the tests.
class PlaceSettle : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("mm-settle-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_ / "meshmark");
    for (const char* name :
         {"MESHMARK_BIND", "MESHMARK_SLOTS", "LSB_USER_BIND_JOB", "LSB_USER_BIND_CPU_LIST", "BIND_JOB", "LSB_BIND_JOB",
          "LSB_BIND_CPU_LIST", "LSB_EFFECTIVE_RSRCREQ", "EGO_DEFINE_NCPUS", "LSF_ENVDIR", "LSB_JOBID"})
      ::unsetenv(name);
    site_ = folder_ / "site.toml";
    ::setenv("MESHMARK_SITE_CONFIG", site_.c_str(), 1);
    ::setenv("XDG_CONFIG_HOME", folder_.c_str(), 1);
    site("");
  }
  void TearDown() override {
    for (const char* name :
         {"MESHMARK_SITE_CONFIG", "XDG_CONFIG_HOME", "MESHMARK_BIND", "EGO_DEFINE_NCPUS", "LSF_ENVDIR"})
      ::unsetenv(name);
    std::filesystem::remove_all(folder_);
  }
  void site(const std::string& text) { std::ofstream(site_) << text; }
  void user(const std::string& text) { std::ofstream(folder_ / "meshmark" / "config.toml") << text; }
  std::string refused(const std::string& text) {
    site(text);
    return complaint([] { read_settings("", {}, {}); });
  }
  std::filesystem::path folder_, site_;
};

TEST_F(PlaceSettle, TheLastWordWinsAndIsNamed) {
  EXPECT_FALSE(read_settings("", {}, {}).bind);
  EXPECT_EQ(read_settings("", {}, {}).from, "");
  site("bind = 'any'\nslots = 'procs'\nmemory = 'local'\n[profile.cfd]\nbind = 'pack'\npages = '2MiB'\n");
  user("[profile.cfd]\nbind = 'scatter'\n[profile.mine]\nslots = 'threads'\n");
  PlacementSettings settings = read_settings("", {}, {});
  EXPECT_EQ(settings.bind, "any");
  EXPECT_EQ(settings.kind, SlotKind::procs);
  EXPECT_EQ(settings.memory, "local");
  EXPECT_EQ(settings.from, "bind: " + site_.string() + "; memory: " + site_.string() + "; slots: " + site_.string());
  settings = read_settings("cfd", {}, {});
  EXPECT_EQ(settings.bind, "scatter");  // the user's profile with that name takes precedence over the site's
  EXPECT_FALSE(settings.pages);
  EXPECT_NE(settings.from.find("bind: profile cfd of " + folder_.string()), std::string::npos) << settings.from;
  EXPECT_EQ(read_settings("mine", {}, {}).kind, SlotKind::threads);
  ::setenv("MESHMARK_BIND", "balance", 1);
  ::setenv("EGO_DEFINE_NCPUS", "cores", 1);
  settings = read_settings("mine", {}, {});
  EXPECT_EQ(settings.bind, "balance");
  EXPECT_EQ(settings.kind, SlotKind::cores);
  settings = read_settings("mine", "compact", "threads");
  EXPECT_EQ(settings.bind, "compact");
  EXPECT_EQ(settings.kind, SlotKind::threads);
  EXPECT_NE(settings.from.find("bind: --bind"), std::string::npos);
  EXPECT_NE(settings.from.find("slots: --slots"), std::string::npos);
  EXPECT_NE(complaint([] { read_settings("nobody", {}, {}); }).find("--profile: found 'nobody'; cfd, mine"),
            std::string::npos);
}

TEST_F(PlaceSettle, LsfsConfigurationDefinesTheSlotsUnlessAnythingElseDoes) {
  const std::filesystem::path file = folder_ / "lsf.conf";
  const auto lsf = [&](const std::string& text) { std::ofstream(file) << text; };
  lsf("# EGO_DEFINE_NCPUS=procs\nLSF_CONFDIR=/lsf/conf\nEGO_DEFINE_NCPUS=threads\n");
  EXPECT_FALSE(read_settings("", {}, {}).kind);  // not in LSF's environment
  ::setenv("LSF_ENVDIR", folder_.c_str(), 1);
  PlacementSettings settings = read_settings("", {}, {});
  EXPECT_EQ(settings.kind, SlotKind::threads);
  EXPECT_EQ(settings.from, "slots: " + file.string() + ": EGO_DEFINE_NCPUS");
  for (const auto& [text, kind] : {std::pair{"EGO_DEFINE_NCPUS = \"procs\" \n", SlotKind::procs},
                                   {"EGO_DEFINE_NCPUS=procs\nEGO_DEFINE_NCPUS=cores\n", SlotKind::cores},
                                   {"EGO_DEFINE_NCPUS=THREADS", SlotKind::threads}}) {
    lsf(text);
    EXPECT_EQ(read_settings("", {}, {}).kind, kind) << text;
  }
  for (const char* text : {"", "EGO_DEFINE_NCPUS=\n", "XEGO_DEFINE_NCPUS=procs\n"}) {
    lsf(text);
    EXPECT_FALSE(read_settings("", {}, {}).kind) << text;
  }
  lsf("EGO_DEFINE_NCPUS=chairs\n");
  EXPECT_EQ(complaint([] { read_settings("", {}, {}); }),
            file.string() + ": EGO_DEFINE_NCPUS: found 'chairs'; procs, cores, threads");
  lsf("EGO_DEFINE_NCPUS=threads\n");
  site("slots = 'procs'\n");
  EXPECT_EQ(read_settings("", {}, {}).kind, SlotKind::procs);
  ::setenv("EGO_DEFINE_NCPUS", "cores", 1);  // LSF's files can be overridden by variables of the same names
  EXPECT_EQ(read_settings("", {}, {}).kind, SlotKind::cores);
  ::unsetenv("EGO_DEFINE_NCPUS");
  ::setenv("LSF_ENVDIR", "/proc/none", 1);
  EXPECT_EQ(read_settings("", {}, {}).kind, SlotKind::procs);
}

TEST_F(PlaceSettle, WhatOnlyLsfUnderstandsDoesNoHarmWhereTheCommandLineSaysAPolicy) {
  ::setenv("LSB_EFFECTIVE_RSRCREQ", "affinity[core(1)]", 1);
  EXPECT_EQ(read_settings("", std::nullopt, std::nullopt).bind, "affinity[core(1)]");
  ::setenv("LSB_EFFECTIVE_RSRCREQ", "affinity[crate]", 1);
  EXPECT_EQ(read_settings("", "pack", std::nullopt).bind, "pack");
  EXPECT_THROW(read_settings("", std::nullopt, std::nullopt), mm::UsageError);
  EXPECT_THROW(read_settings("", "user", std::nullopt), mm::UsageError);
  ::unsetenv("LSB_EFFECTIVE_RSRCREQ");
}

TEST_F(PlaceSettle, AWrongFileIsToldInOneLineWithItsKey) {
  const std::pair<const char*, const char*> cases[] = {
      {"[[[bind]]]", "site.toml: "},  // aborts toml++ if its asserts are enabled
      {"bindd = 'any'", "site.toml: bindd: is not a key here; bind, slots, memory, pages, [profile.NAME]"},
      {"bind = 3", "site.toml: bind: is not a string"},
      {"bind = 'nonsense'", "site.toml: bind: "},
      {"slots = 'chairs'", "site.toml: slots: found 'chairs'"},
      {"memory = 'nonsense'", "site.toml: memory: "},
      {"pages = '3MiB'", "site.toml: pages: found '3MiB'; default, 4KiB, thp, 2MiB, 1GiB"},
      {"profile = 1", "site.toml: profile: is not a key here"},
      {"[profile]\nx = 1", "site.toml: profile.x: is not a table"},
      {"[profile.x]\ncolour = 'red'", "site.toml: profile.x.colour: is not a key here"},
      {"\nbind = ", "site.toml: line 2: "},
  };
  for (const auto& [text, words] : cases) {
    const std::string said = refused(text);
    EXPECT_NE(said.find(words), std::string::npos) << said << "\nwanted: " << words;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
  site("");
  user("bind = 'any'");
  EXPECT_NE(complaint([] { read_settings("", {}, {}); }).find("config.toml: bind: is not a key here; [profile.NAME]"),
            std::string::npos);
  ::setenv("MESHMARK_SITE_CONFIG", "/proc/none/meshmark.toml", 1);
  EXPECT_NE(complaint([] { read_settings("", {}, {}); }).find("/proc/none/meshmark.toml: found no such file"),
            std::string::npos);
}

}  // namespace
