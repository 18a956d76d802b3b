/// Policies: published examples to the CPU, brute-force oracles, and invariants of all placements.
#include "place/policy/policy.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <random>
#include <set>

#include "base/error.hpp"
#include "base/json.hpp"
#include "temporary_folder.hpp"

namespace {

using namespace mm::place;
using mm::Cpu, mm::Machine, mm::machine_of;
namespace fs = std::filesystem;
using Cpus = std::vector<int>;

const fs::path kMachines = fs::path(__FILE__).parent_path().parent_path() / "machines";
constexpr const char* kTwoByFour = "pack:2 [numa] core:4 pu:1";

Request request(const std::string& bind, int slots = 1, SlotKind kind = SlotKind::cores) {
  Request r;
  parse_bind(bind, r);
  r.slots = slots;
  r.kind = kind;
  return r;
}

Occupancy holding(const Cpus& cpus) {
  Occupancy taken;
  for (const int c : cpus) taken.jobs[c] = 1;
  return taken;
}

/// CPUs of successive jobs.
std::vector<Cpus> jobs(const Machine& machine, const std::string& bind, const std::vector<int>& slots,
                       SlotKind kind = SlotKind::cores, Occupancy taken = {}) {
  std::vector<Cpus> result;
  for (const int n : slots) {
    const Request r = request(bind, n, kind);
    const Placement p = place(machine, r, taken);
    occupy(taken, p, r.exclude);
    result.push_back(p.layout.cpus());
  }
  return result;
}

/// One CPU per node, with a matrix.
Machine with_matrix(const std::vector<std::vector<double>>& values, const std::string& each = "core:1 pu:1") {
  const TemporaryFolder folder;
  Cpus nodes(values.size());
  std::iota(nodes.begin(), nodes.end(), 0);
  Machine machine = machine_of("pack:" + std::to_string(values.size()) + " [numa] " + each);
  use_matrix(
      machine,
      folder.write("m.json", mm::json{{"nodes", nodes}, {"unit", "1"}, {"what", "test"}, {"values", values}}.dump()));
  return machine;
}

std::vector<std::vector<double>> torus(int rows, int columns, double local = 10, double hop = 6) {
  const int n = rows * columns;
  std::vector<std::vector<double>> d(static_cast<std::size_t>(n), std::vector<double>(static_cast<std::size_t>(n)));
  const auto ring = [](int a, int b, int size) { return std::min(std::abs(a - b), size - std::abs(a - b)); };
  for (int a = 0; a < n; ++a)
    for (int b = 0; b < n; ++b)
      d[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)] =
          local + hop * (ring(a / columns, b / columns, rows) + ring(a % columns, b % columns, columns));
  return d;
}

std::vector<std::vector<double>> random_matrix(std::mt19937_64& random, std::size_t n) {
  std::vector<std::vector<double>> d(n, std::vector<double>(n, 1));
  for (std::size_t a = 0; a < n; ++a)
    for (std::size_t b = 0; b < a; ++b) d[a][b] = d[b][a] = 1 + static_cast<double>(random() % 1000) / 10;
  return d;
}

// ------------------------------------------------------------------ published examples

// LSF: first core of the first processor, first of the second, second of the first (white paper of 2009, part 3).
TEST(Balance, DealsOneSlotJobsRoundTheSocketsAsPublished) {
  const Machine m = machine_of(kTwoByFour);
  EXPECT_EQ(jobs(m, "balance", {1, 1, 1, 1, 1, 1, 1, 1}), (std::vector<Cpus>{{0}, {4}, {1}, {5}, {2}, {6}, {3}, {7}}));
  EXPECT_EQ(jobs(m, "Y", {3}), (std::vector<Cpus>{{0, 1, 4}}));
  EXPECT_EQ(place(m, request("balance", 3), {}).layout.parts, (std::vector<Cpus>{{0}, {4}, {1}}));
}

TEST(Balance, LooksAtTheLoadAndOversubscribesOnlyWhatIsLeastLoadedWhenAllIsTaken) {
  const Machine m = machine_of(kTwoByFour);
  EXPECT_EQ(jobs(m, "balance", {1, 1, 1}, SlotKind::cores, holding({0, 1})), (std::vector<Cpus>{{4}, {5}, {2}}));
  Occupancy full = holding({0, 1, 2, 3, 4, 5, 6, 7});
  full.jobs[0] = 2;
  Placement p = place(m, request("balance"), full);
  EXPECT_EQ(p.layout.cpus(), Cpus{4});
  EXPECT_TRUE(p.oversubscribed);
  full.jobs.erase(6);
  p = place(m, request("balance"), full);
  EXPECT_EQ(p.layout.cpus(), Cpus{6});
  EXPECT_FALSE(p.oversubscribed);
}

TEST(Pack, FillsOneSocketAndNeverSplitsAsPublished) {
  const Machine m = machine_of(kTwoByFour);
  EXPECT_EQ(jobs(m, "pack", {2, 2, 2}), (std::vector<Cpus>{{0, 1}, {2, 3}, {4, 5}}));
  EXPECT_EQ(jobs(m, "PACK", {2, 2}, SlotKind::cores, holding({0, 3})), (std::vector<Cpus>{{1, 2}, {4, 5}}));
  EXPECT_EQ(jobs(m, "pack", {3, 3, 1}), (std::vector<Cpus>{{0, 1, 2}, {4, 5, 6}, {3}}));
  EXPECT_EQ(jobs(m, "pack", {1}, SlotKind::cores, holding({4})), (std::vector<Cpus>{{5}}));  // the fuller socket
  EXPECT_THROW(jobs(m, "pack", {2}, SlotKind::cores, holding({0, 1, 2, 4, 5, 6})), Busy);
  EXPECT_THROW(jobs(m, "pack", {8, 1}), Busy);
}

TEST(Pack, GivesAJobLargerThanASocketTheFewestAndRefusesItWhereOneIsAsked) {
  const Machine m = machine_of("pack:4 [numa] core:4 pu:1");
  EXPECT_EQ(jobs(m, "pack", {6}), (std::vector<Cpus>{{0, 1, 2, 3, 4, 5}}));
  // Sockets 1 and 3 are used whole; the remaining two slots go where they leave the least free.
  EXPECT_EQ(jobs(m, "pack", {10}, SlotKind::cores, holding({0, 8, 9})),
            (std::vector<Cpus>{{4, 5, 6, 7, 10, 11, 12, 13, 14, 15}}));
  EXPECT_THROW(place(m, request("pack(socket=1)", 5), {}), mm::UsageError);
  EXPECT_EQ(place(m, request("pack(socket=1)", 4), {}).layout.cpus(), (Cpus{0, 1, 2, 3}));
}

TEST(Any, TakesTheFirstFree) {
  const Machine m = machine_of(kTwoByFour);
  EXPECT_EQ(jobs(m, "any", {1, 1, 3}), (std::vector<Cpus>{{0}, {1}, {2, 3, 4}}));
  EXPECT_THROW(jobs(m, "any", {8, 1}), Busy);
}

TEST(None, BindsNothing) { EXPECT_TRUE(place(machine_of(kTwoByFour), request("N", 3), {}).layout.parts.empty()); }

TEST(List, GivesPartsInTheOrderGiven) {
  const Machine m = machine_of(kTwoByFour);
  EXPECT_EQ(place(m, request("list=6,2,0-1", 4), {}).layout.parts, (std::vector<Cpus>{{6}, {2}, {0}, {1}}));
  EXPECT_EQ(place(m, request("6,2,0-1", 2), {}).layout.parts, (std::vector<Cpus>{{2, 6}, {0, 1}}));
  EXPECT_EQ(place(m, request("list=0-3", 1), {}).layout.parts, (std::vector<Cpus>{{0, 1, 2, 3}}));
  EXPECT_THROW(place(m, request("list=0-1", 3), {}), mm::UsageError);
  EXPECT_THROW(place(m, request("list=8", 1), {}), mm::UsageError);
  EXPECT_TRUE(place(m, request("list=0", 1), holding({0})).oversubscribed);
  EXPECT_THROW(request("list=0,1,0"), mm::UsageError);
  EXPECT_EQ(request("list=4-12,^8,near=node:0").list, (Cpus{4, 5, 6, 7, 9, 10, 11, 12}));
  EXPECT_EQ(request("list=7,0-6:2,exclude").list, (Cpus{7, 0, 2, 4, 6}));
  EXPECT_EQ(request("0-15:2/8").list, (Cpus{0, 1, 8, 9}));
  for (const char* invalid : {"list=^8", "list=0-3:0", "list=0-99999999999999", "list=0-3,near=eth0,4", "list=0-3,^9"})
    EXPECT_THROW(request(invalid), mm::UsageError) << invalid;
}

// ------------------------------------------------------------------ slots and machines

// EGO_DEFINE_NCPUS: the third job goes to the second thread of the first processor.
TEST(Slots, AreSocketsCoresOrThreads) {
  const Machine m = machine_of("pack:2 [numa] core:2 pu:2");
  EXPECT_EQ(jobs(m, "balance", {1, 1}, SlotKind::procs), (std::vector<Cpus>{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(jobs(m, "balance", {1, 1, 1}, SlotKind::cores), (std::vector<Cpus>{{0, 1}, {4, 5}, {2, 3}}));
  EXPECT_EQ(jobs(m, "balance", {1, 1, 1}, SlotKind::threads), (std::vector<Cpus>{{0}, {4}, {1}}));
  // An occupied thread makes its core and its socket occupied.
  EXPECT_EQ(jobs(m, "any", {1}, SlotKind::cores, holding({1})), (std::vector<Cpus>{{2, 3}}));
  EXPECT_EQ(jobs(m, "any", {1}, SlotKind::procs, holding({1})), (std::vector<Cpus>{{4, 5, 6, 7}}));
  Request r = request("any", 3, SlotKind::cores);
  r.within = {1, 2, 3, 6};
  EXPECT_EQ(place(m, r, {}).layout.parts, (std::vector<Cpus>{{1}, {2, 3}, {6}}));
}

TEST(Slots, FollowTheMachineNotTheNumbers) {
  // Typical firmware numbering: first all first threads, alternating between sockets.
  const Machine m = machine_of("pack:2 [numa] core:2 pu:2(indexes=0,4,2,6,1,5,3,7)");
  EXPECT_EQ(jobs(m, "balance", {1, 1, 1}, SlotKind::cores), (std::vector<Cpus>{{0, 4}, {1, 5}, {2, 6}}));
  EXPECT_EQ(m.cpu(4).smt, 1);
  EXPECT_EQ(m.cpu(5).package, 1);
}

TEST(Machines, HaveNodesWithoutCpusAndPackagesOfSeveralNodes) {
  const Machine hbm = machine_of((kMachines / "hbm-2.xml").string());
  ASSERT_EQ(hbm.nodes.size(), 4U);
  EXPECT_EQ(hbm.nodes[0].cpus, (Cpus{0, 1, 2, 3}));
  EXPECT_TRUE(hbm.nodes[1].cpus.empty());
  EXPECT_EQ(hbm.cpu(7).node, 2);
  EXPECT_EQ(hbm.nodes[1].bytes, 16'000'000'000ULL);
  const Machine snc = machine_of((kMachines / "2x8-snc4.xml").string());
  EXPECT_EQ(snc.nodes.size(), 8U);
  // Four slots on eight nodes of two packages: one per node, two per package.
  const Placement p = place(snc, request("scatter", 4), {});
  std::map<int, int> packages;
  std::set<int> nodes;
  for (const auto& part : p.layout.parts)
    ++packages[snc.cpu(part.front()).package], nodes.insert(snc.cpu(part.front()).node);
  EXPECT_EQ(nodes.size(), 4U);
  EXPECT_EQ(packages[0], 2);
  const Machine big = machine_of((kMachines / "4x64-smt.xml").string());
  EXPECT_EQ(big.cpus.size(), 512U);
  EXPECT_EQ(jobs(big, "pack", {64, 64})[1].front(), 128);
}

TEST(Machines, OfRecordingsAreReadWithTheirDistances) {
  const TemporaryFolder folder;
  if (!folder.unpack("cxl-2+1")) GTEST_SKIP() << "tar cannot unpack xz here";
  const Machine cxl = machine_of(folder.path("hwloc.xml"));
  EXPECT_EQ(cxl.distance_from, "firmware");
  EXPECT_EQ(cxl.distance, (std::vector<std::vector<double>>{{10, 21, 30}, {21, 10, 30}, {30, 30, 10}}));
  EXPECT_EQ(cxl.cpu(0).node, 0);
  EXPECT_TRUE(cxl.nodes[2].cpus.empty());
  EXPECT_EQ(cxl.hops()[0], (Cpus{0, 1, 2}));
  const TemporaryFolder other;
  ASSERT_TRUE(other.unpack("memless-3"));
  const Machine less = machine_of(other.path("hwloc.xml"));
  EXPECT_EQ(less.nodes.size(), 2U);
  EXPECT_EQ(less.cpu(1).node, 0);  // its node has no memory
}

// The host is read with only the parts of hwloc that placement needs; the XML contains all of them.
TEST(Machines, AreTheSameFromTheKernelsTreeAsFromXml) {
  for (const char* name : {"snc-2x2", "torus-4x4-16", "cxl-2+1", "smt-2-offline"}) {
    const TemporaryFolder folder;
    if (!folder.unpack(name)) GTEST_SKIP() << "tar cannot unpack xz here";
    const Machine expected = machine_of(folder.path("hwloc.xml"));
    setenv("HWLOC_FSROOT", folder.path("root").c_str(), 1);
    const Machine found = machine_of("host");
    unsetenv("HWLOC_FSROOT");
    EXPECT_EQ(found.distance, expected.distance) << name;
    EXPECT_EQ(found.distance_from, "firmware") << name;
    ASSERT_EQ(found.nodes.size(), expected.nodes.size()) << name;
    for (std::size_t i = 0; i < found.nodes.size(); ++i) EXPECT_EQ(found.nodes[i].cpus, expected.nodes[i].cpus) << name;
    ASSERT_EQ(found.cpus.size(), expected.cpus.size()) << name;
    for (std::size_t i = 0; i < found.cpus.size(); ++i) {
      const Cpu &a = found.cpus[i], &b = expected.cpus[i];
      EXPECT_EQ((Cpus{a.id, a.core, a.package, a.l3, a.node, a.smt}),
                (Cpus{b.id, b.core, b.package, b.l3, b.node, b.smt}))
          << name;
    }
  }
}

TEST(Machines, OfThisHostAreThoseTheProcessMayUse) {
  const Machine m = machine_of("host");
  EXPECT_FALSE(m.allowed.empty());
  EXPECT_LE(m.allowed.size(), m.cpus.size());
  for (const int cpu : m.allowed) EXPECT_EQ(m.cpu(cpu).id, cpu);
  EXPECT_THROW(m.cpu(1 << 20), mm::UsageError);
}

TEST(Machines, ThatAreNoneAreRefusedInOneLine) {
  const TemporaryFolder folder;
  const std::string garbage = folder.write("garbage.xml", std::string(1000, '\1'));
  const std::string torn = folder.write("torn.xml", "<?xml version=\"1.0\"?>\n<topology version=\"2.0\"><object type=");
  testing::internal::CaptureStderr();
  for (const std::string& text : {garbage, torn, std::string("/"), std::string("nonsense"), std::string("pack:2 core"),
                                  std::string("pack:0 pu:0"), std::string("pack:99999 core:99999 pu:9"),
                                  std::string(""), folder.write("empty.xml", "")}) {
    try {
      machine_of(text);
      ADD_FAILURE() << "took '" << text << "'";
    } catch (const mm::UsageError& e) {
      EXPECT_EQ(e.field, "topology") << text;
    }
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Matrix, IsCheckedAndBandwidthTurnedRound) {
  const TemporaryFolder folder;
  Machine m = machine_of(kTwoByFour);
  const auto use = [&](const std::string& text) { use_matrix(m, folder.write("m.json", text)); };
  use(R"({"nodes":[1,0],"unit":"B/s","what":"bandwidth","better":"higher","values":[[4,2],[1,5]]})");
  EXPECT_EQ(m.distance, (std::vector<std::vector<double>>{{0.2, 1}, {0.5, 0.25}}));
  EXPECT_EQ(m.distance_from, "1 / bandwidth (B/s)");
  for (const char* invalid : {"", "[]", "{", R"({"nodes":[0,1],"unit":"s","what":"x"})",
                              R"({"nodes":[0],"unit":"s","what":"x","values":[[1]]})",
                              R"({"nodes":[0,1],"unit":"s","what":"x","values":[[1,2],[3]]})",
                              R"({"nodes":[0,1],"unit":"s","what":"x","values":[[1,2],[3,0]]})",
                              R"({"nodes":[0,1],"unit":"s","what":"x","values":[[1,2],[3,"a"]]})",
                              R"({"nodes":[0,1],"unit":"s","what":"x","values":[[1,2],[null,1]]})",
                              R"({"nodes":[0,7],"unit":"s","what":"x","values":[[1,2],[3,4]]})",
                              R"({"nodes":[0,0],"unit":"s","what":"x","values":[[1,2],[3,4]]})",
                              R"({"nodes":[0,1],"unit":"s","what":"x","values":[[1,2],[3,4]],"hops":[[0,1]]})",
                              R"({"nodes":[0,1],"unit":"s","what":"x","values":[[1,2],[3,4]],"hops":[[0,1],[1]]})",
                              R"({"nodes":[0,1],"unit":"s","what":"x","values":[[1,2],[3,4]],"hops":[[0,-1],[1,0]]})",
                              R"({"nodes":[0,1],"unit":"s","what":"x","better":"more","values":[[1,2],[3,4]]})"})
    EXPECT_THROW(use(invalid), mm::UsageError) << invalid;
  EXPECT_THROW(use_matrix(m, "/proc/nowhere"), mm::UsageError);
}

TEST(Sharing, IsReadFromAFileAndEachMistakeIsNamed) {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& text) { return read_sharing(folder.write("s.json", text)); };
  const PartDemands both = read(R"({"traffic": [[0, 1e300], [2.5, 0]], "bandwidth_demand": [0, 1]})");
  EXPECT_EQ(both.traffic, (std::vector<std::vector<double>>{{0, 1e300}, {2.5, 0}}));
  EXPECT_EQ(both.bandwidth_demand, (std::vector<double>{0, 1}));
  EXPECT_TRUE(read(R"({"bandwidth_demand": [0.5]})").traffic.empty());
  EXPECT_TRUE(read(R"({"traffic": [[0]]})").bandwidth_demand.empty());
  for (const char* const wrong :
       {"", "[]", "{}", R"({"bandwidth_demand": 1})", R"({"bandwidth_demand": [1.01]})",
        R"({"bandwidth_demand": [-0.1]})", R"({"bandwidth_demand": ["1"]})", R"({"traffic": 3})", R"({"traffic": [3]})",
        R"({"traffic": [[0, 1], [1]]})", R"({"traffic": [[0, 1]]})", R"({"traffic": [[-1]]})",
        R"({"traffic": [[0, 1], [1, 0]], "bandwidth_demand": [1]})"}) {
    try {
      read(wrong);
      ADD_FAILURE() << wrong;
    } catch (const mm::UsageError& e) {
      EXPECT_EQ(e.field, "sharing") << wrong;
      EXPECT_FALSE(e.allowed.empty()) << wrong;
    }
  }
  EXPECT_THROW(read_sharing("/proc/nowhere"), mm::UsageError);
}

// ------------------------------------------------------------------ compact

TEST(Compact, IsASquareOnTheTorus) {
  const TemporaryFolder folder;
  if (!folder.unpack("torus-4x4-16")) GTEST_SKIP() << "tar cannot unpack xz here";
  const Machine m = machine_of(folder.path("hwloc.xml"));
  const Placement p = place(m, request("compact", 4), {});
  EXPECT_EQ(p.layout.cpus(), (Cpus{0, 1, 4, 5}));
  EXPECT_TRUE(p.optimal);
  EXPECT_DOUBLE_EQ(*p.mean_distance, (4 * 16 + 2 * 22) / 6.0);
  EXPECT_DOUBLE_EQ(*p.bound, *p.mean_distance);
  EXPECT_EQ(place(m, request("compact", 4), holding({0, 2, 5})).layout.cpus(), (Cpus{6, 7, 10, 11}));
}

TEST(Compact, TakesNodesFirstThenWhatTheyShare) {
  const Machine m = machine_of("pack:2 [numa] l3:2 core:2 pu:2");
  EXPECT_EQ(place(m, request("compact", 2), {}).layout.cpus(), (Cpus{0, 1, 2, 3}));
  EXPECT_EQ(place(m, request("compact", 2), holding({0})).layout.cpus(), (Cpus{4, 5, 6, 7}));               // one L3
  EXPECT_EQ(place(m, request("compact", 3), holding({0})).layout.cpus(), (Cpus{2, 3, 4, 5, 6, 7}));         // one node
  EXPECT_EQ(place(m, request("compact", 2, SlotKind::threads), holding({0})).layout.cpus(), (Cpus{2, 3}));  // one core
  EXPECT_EQ(place(m, request("compact", 2, SlotKind::procs), {}).layout.parts.size(), 2U);
}

TEST(Compact, OnAMeasuredMatrixFindsTheBestOfAllSets) {
  std::mt19937_64 random(3);
  const auto d = random_matrix(random, 12);
  const Machine m = with_matrix(d);
  const Placement p = place(m, request("compact", 4), {});
  double best = 1e300;
  for (std::size_t a = 0; a < 12; ++a)
    for (std::size_t b = 0; b < a; ++b)
      for (std::size_t c = 0; c < b; ++c)
        for (std::size_t e = 0; e < c; ++e)
          best = std::min(best, (d[a][b] + d[a][c] + d[a][e] + d[b][c] + d[b][e] + d[c][e]) / 6);
  EXPECT_NEAR(*p.mean_distance, best, 1e-9);
  EXPECT_TRUE(p.optimal);
}

// ------------------------------------------------------------------ scatter, sharing, modifiers

TEST(Scatter, GoesFarApartAndFillsNodesInTurn) {
  const Machine m = with_matrix(torus(4, 4));
  EXPECT_EQ(place(m, request("scatter", 2), {}).layout.parts, (std::vector<Cpus>{{0}, {10}}));
  const Machine l3 = machine_of("pack:2 [numa] l3:2 core:2 pu:1");
  EXPECT_EQ(place(l3, request("scatter", 4), {}).layout.parts, (std::vector<Cpus>{{0}, {4}, {2}, {6}}));
  EXPECT_EQ(jobs(l3, "scatter", {1, 1}), (std::vector<Cpus>{{0}, {4}}));  // the second avoids the first one's memory
  EXPECT_THROW(place(l3, request("scatter", 6), holding({4, 5, 6})), Busy);
}

TEST(Sharing, PutsTalkersTogetherAndHungryOnesApart) {
  const Machine m = machine_of(kTwoByFour);
  Request r = request("sharing", 4);
  r.sharing = PartDemands{{{0, 0, 9, 0}, {0, 0, 0, 9}, {9, 0, 0, 0}, {0, 9, 0, 0}}, {1, 1, 0, 0}};
  const auto parts = place(m, r, {}).layout.parts;
  const auto node = [&](std::size_t i) { return m.cpu(parts[i].front()).node; };
  EXPECT_EQ(node(0), node(2));
  EXPECT_EQ(node(1), node(3));
  EXPECT_NE(node(0), node(1));
  EXPECT_THROW(place(m, request("sharing", 4), {}), mm::UsageError);
  r.slots = 3;
  EXPECT_THROW(place(m, r, {}), mm::UsageError);
}

// Random traffic on a random machine, compared with every assignment of parts to nodes.
TEST(Sharing, FindsWhatBruteForceFinds) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 25; ++round) {
    const auto d = random_matrix(random, 5);
    const Machine m = with_matrix(d, "core:1 pu:1");
    Request r = request("sharing", 4);
    r.sharing = PartDemands{random_matrix(random, 4), {}};
    const Placement p = place(m, r, {});
    EXPECT_TRUE(p.optimal);
    const auto cost = [&](const Cpus& at) {
      double sum = 0;
      for (std::size_t i = 0; i < 4; ++i)
        for (std::size_t j = 0; j < i; ++j)
          // All pairs of nodes are at the same level, which adds a tenth of the (equal) local distance.
          sum += (r.sharing->traffic[i][j] + r.sharing->traffic[j][i]) *
                 (d[static_cast<std::size_t>(at[i])][static_cast<std::size_t>(at[j])] + 0.1);
      return sum;
    };
    Cpus all = {0, 1, 2, 3, 4};
    double best = 1e300;
    do best = std::min(best, cost(all));
    while (std::next_permutation(all.begin(), all.end()));
    Cpus found;
    for (const auto& part : p.layout.parts) found.push_back(part.front());
    EXPECT_NEAR(cost(found), best, 1e-9 * best) << "round " << round;
  }
}

TEST(Near, TakesTheNearestNodesThatHaveRoom) {
  const Machine m = with_matrix(torus(4, 4), "core:2 pu:1");
  EXPECT_EQ(place(m, request("pack,near=node:5", 2), {}).layout.cpus(), (Cpus{10, 11}));
  EXPECT_EQ(place(m, request("any,near=node:5", 2), holding({10})).layout.cpus(), (Cpus{2, 3}));  // node 1, one hop
  Machine with_card = m;
  with_card.devices = {{"eth0", {30, 31}}};
  EXPECT_EQ(place(with_card, request("balance,near=eth0", 1), {}).layout.cpus(), Cpus{30});
  EXPECT_THROW(place(m, request("any,near=eth7", 1), {}), mm::UsageError);
  EXPECT_THROW(place(m, request("any,near=node:99", 1), {}), mm::UsageError);
}

TEST(Hops, CountFromAHomeNode) {
  const Machine m = with_matrix(torus(4, 4));
  // One hop on a torus: a node and its four neighbours.
  for (const char* policy : {"any", "balance", "compact", "scatter", "pack"}) {
    const Placement p = place(m, request(std::string(policy) + ",distance<=1", 5), {});
    EXPECT_EQ(p.layout.cpus(), (Cpus{0, 1, 3, 4, 12})) << policy;
    EXPECT_THROW(place(m, request(std::string(policy) + ",distance<=1", 6), {}), mm::UsageError) << policy;
  }
  EXPECT_EQ(place(m, request("any,distance<=0", 1), {}).layout.cpus(), (Cpus{0}));
  EXPECT_THROW(place(m, request("any,distance<=0", 2), {}), mm::UsageError);
  Cpus all_but_two(14);
  std::iota(all_but_two.begin(), all_but_two.end(), 0);
  all_but_two[0] = 15;  // free: 0 and 14, which are three hops apart
  EXPECT_THROW(place(m, request("any,distance<=1", 2), holding(all_but_two)), Busy);
  EXPECT_EQ(place(m, request("any,distance<=2", 2), holding(all_but_two)).layout.cpus(), (Cpus{0, 14}));
}

// Where the graph is known, its links count, whatever the latencies are.
TEST(Hops, AreLinksIfTheGraphIsKnown) {
  Machine m = with_matrix(torus(1, 6));
  m.link_hops = m.hops();
  m.distance[0][1] = m.distance[1][0] = 1000;
  EXPECT_EQ(m.hops()[0][1], 1);
  EXPECT_EQ(place(m, request("any,distance<=1", 3), {}).layout.cpus(), (Cpus{0, 1, 5}));
}

// On a ring, a node and its neighbours form a set; a proof for each of them is a proof for the job.
TEST(Hops, KeepWhatIsProvenOfEverySet) {
  const Machine m = with_matrix(torus(1, 40));
  const Placement p = place(m, request("compact,distance<=3", 3), {});
  EXPECT_EQ(p.layout.cpus(), (Cpus{0, 1, 39}));
  EXPECT_TRUE(p.optimal);
  EXPECT_DOUBLE_EQ(*p.bound, *p.mean_distance);
  EXPECT_EQ(p.why, "minimum mean distance, proven");
}

TEST(Exclude, KeepsOthersOffTheWholeCore) {
  const Machine m = machine_of("pack:1 [numa] core:3 pu:2");
  Occupancy taken;
  const Request alone = request("any,exclude", 1, SlotKind::threads);
  const Placement first = place(m, alone, taken);
  occupy(taken, first, true);
  EXPECT_EQ(first.layout.cpus(), Cpus{0});
  EXPECT_EQ(jobs(m, "any", {1, 1}, SlotKind::threads, taken), (std::vector<Cpus>{{2}, {3}}));  // not its sibling
  EXPECT_THROW(place(m, request("list=1"), taken), Busy);
  EXPECT_EQ(place(m, alone, holding({0, 3})).layout.cpus(), Cpus{4});
  EXPECT_THROW(place(m, request("balance,exclude", 3), holding({0})), Busy);
  // Balance never oversubscribes exclusive CPUs.
  Occupancy all = taken;
  for (int c = 0; c < 6; ++c) all.jobs[c] = 1;
  EXPECT_NE(place(m, request("balance"), all).layout.cpus(), (Cpus{0, 1}));
}

TEST(Requests, ThatContradictThemselvesAreRefused) {
  const Machine m = machine_of(kTwoByFour);
  Request r = request("balance");
  r.list = {0};
  EXPECT_THROW(place(m, r, {}), mm::UsageError);
  EXPECT_THROW(place(m, request("any", 9), {}), mm::UsageError);
  EXPECT_THROW(place(m, request("any", 0), {}), mm::UsageError);
  EXPECT_THROW(place(m, request("list=0-1,near=node:0"), {}), mm::UsageError);
  r = request("any");
  r.within = {0, 9};
  EXPECT_THROW(place(m, r, {}), mm::UsageError);
  for (const char* invalid : {"", "best", "list=", "list=a", "balance,near=", "balance,distance<=x",
                              "balance,distance<=-1", "balance,0-3", "user", "list=3-1", "pack,exclusive"})
    EXPECT_THROW(request(invalid), mm::UsageError) << invalid;
  const Request all = request("LIST=0-1,4,near=eth0,distance<=2,exclude");
  EXPECT_EQ(all.list, (Cpus{0, 1, 4}));
  EXPECT_EQ(all.near, "eth0");
  EXPECT_EQ(*all.max_hops, 2);
  EXPECT_TRUE(all.exclude);
}

// For any request on any machine: as many parts as requested, only allowed CPUs, none twice, none that others hold
// unless oversubscribed.
TEST(Place, NeverBreaksItsPromises) {
  std::mt19937_64 random(42);
  int placed = 0;
  for (int round = 0; round < 600; ++round) {
    const auto few = [&](unsigned most) { return std::to_string(1 + random() % most); };
    const Machine m = machine_of("pack:" + few(3) + " group:" + few(2) + " [numa] l3:" + few(2) + " core:" + few(3) +
                                 " pu:" + few(2));
    const char* names[] = {"balance", "pack", "any", "compact", "scatter", "sharing"};
    const SlotKind kinds[] = {SlotKind::procs, SlotKind::cores, SlotKind::threads};
    Request r = request(names[random() % 6], 1 + static_cast<int>(random() % 6), kinds[random() % 3]);
    if (r.policy == "sharing") r.sharing = PartDemands{random_matrix(random, static_cast<std::size_t>(r.slots)), {}};
    for (const int cpu : m.allowed)
      if (random() % 5 != 0) r.within.push_back(cpu);
    if (random() % 5 == 0) r.max_hops = static_cast<int>(random() % 3);
    if (random() % 5 == 0) r.near = "node:0";
    r.exclude = random() % 5 == 0;
    Occupancy taken;
    for (const int cpu : m.allowed)
      if (random() % 4 == 0) taken.jobs[cpu] = 1, taken.exclusive[cpu] = random() % 3 == 0;
    try {
      const Placement p = place(m, r, taken);
      ++placed;
      ASSERT_EQ(p.layout.parts.size(), static_cast<std::size_t>(r.slots));
      std::set<int> cpus_used;
      for (const auto& part : p.layout.parts) {
        ASSERT_FALSE(part.empty());
        for (const int cpu : part) {
          EXPECT_TRUE(cpus_used.insert(cpu).second);
          EXPECT_TRUE(r.within.empty() || std::count(r.within.begin(), r.within.end(), cpu) == 1);
          EXPECT_TRUE(p.oversubscribed || taken.jobs.count(cpu) == 0) << r.policy;
          for (const auto& [other, exclusive] : taken.exclusive)
            EXPECT_TRUE(!exclusive || m.cpu(other).core != m.cpu(cpu).core);
          for (const auto& [other, count] : taken.jobs) EXPECT_TRUE(!r.exclude || m.cpu(other).core != m.cpu(cpu).core);
        }
      }
      EXPECT_TRUE(!p.oversubscribed || r.policy == "balance");
      if (r.policy == "pack" && r.kind == SlotKind::cores) {
        std::map<int, std::size_t> size;
        for (const auto& s : slots_of(m, r.kind, r.within.empty() ? m.allowed : r.within)) ++size[m.cpu(s[0]).package];
        std::set<int> used;
        for (const int cpu : cpus_used) used.insert(m.cpu(cpu).package);
        for (const auto& [package, n] : size) EXPECT_TRUE(used.size() == 1 || n < p.layout.parts.size());
      }
    } catch (const Busy&) {
    } catch (const mm::UsageError& e) {
      EXPECT_EQ(e.field, "slots") << e.what();
    }
  }
  EXPECT_GT(placed, 150);
}

// ------------------------------------------------------------------ meshmark place

mm::json plan(std::vector<std::string> words, bool fails = false) {
  words.insert(words.begin(), "plan");
  words.push_back("--json");
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  testing::internal::CaptureStdout();
  bool failed = false;
  try {
    plan_verb(static_cast<int>(argv.size()), argv.data());
  } catch (const mm::Failure&) {
    failed = true;
  } catch (...) {
    testing::internal::GetCapturedStdout();
    throw;
  }
  EXPECT_EQ(failed, fails);
  return mm::json::parse(testing::internal::GetCapturedStdout());
}

TEST(Plan, SaysWhatAPolicyWouldDo) {
  const mm::json p = plan({"--topology", kTwoByFour, "--policy", "pack", "--jobs", "2,2,2"});
  ASSERT_EQ(p["jobs"].size(), 3U);
  EXPECT_EQ(p["jobs"][2]["cpus"], mm::json::parse("[4,5]"));
  EXPECT_EQ(p["jobs"][2]["parts"], mm::json::parse("[[4],[5]]"));
  EXPECT_EQ(p["jobs"][2]["nodes"], mm::json::parse("[1]"));
  EXPECT_EQ(p["machine"]["cores"], 8);
  EXPECT_EQ(p["slots"], "cores");
}

TEST(Plan, TellsWhoFoundNoPlaceAndFails) {
  const mm::json p = plan({"--topology", kTwoByFour, "--policy", "pack", "--jobs", "4,3,2,9"}, true);
  EXPECT_FALSE(p["jobs"][1].contains("refused"));
  EXPECT_TRUE(p["jobs"][2].contains("refused"));
  EXPECT_TRUE(p["jobs"][3].contains("refused"));
}

TEST(Plan, ListsAreConsumedAndNoneIsEmpty) {
  const mm::json p = plan({"--topology", kTwoByFour, "--policy", "list=3,1,6-7", "--jobs", "1,2"});
  EXPECT_EQ(p["jobs"][0]["cpus"], mm::json::parse("[3]"));
  EXPECT_EQ(p["jobs"][1]["parts"], mm::json::parse("[[1],[6]]"));
  EXPECT_EQ(plan({"--topology", kTwoByFour, "--policy", "none", "--jobs", "2"})["jobs"][0]["cpus"], mm::json::array());
  for (const std::vector<std::string>& invalid : {std::vector<std::string>{"--jobs", "0"},
                                                  {"--jobs", "a"},
                                                  {"--jobs", ""},
                                                  {"--jobs", "-1"},
                                                  {"--slots", "cpus"},
                                                  {"--taken", "99"},
                                                  {"--within", "99"},
                                                  {"--matrix", "/proc/nowhere"},
                                                  {"--sharing", "/proc/nowhere"},
                                                  {"--bogus"}}) {
    std::vector<std::string> words = {"--topology", kTwoByFour};
    words.insert(words.end(), invalid.begin(), invalid.end());
    EXPECT_THROW(plan(words), mm::UsageError) << invalid.front();
  }
}

}  // namespace
