/// One topology: every source of a machine gives the same CPUs, cores, packages, nodes and distances.
#include "base/topology/topology.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/topology/readers/hwloc_reader.hpp"
#include "temporary_folder.hpp"
#include "watch/board.hpp"
#include "watch/source.hpp"

namespace {

using namespace mm;
using Ids = std::vector<int>;

const std::vector<std::string> kRecorded = {"uma-2",   "opteron-2", "numa-2",    "smt-2",  "smt-2-offline",
                                            "snc-2x2", "cxl-2+1",   "memless-3", "ring-8", "torus-4x4-16"};

/// hwloc reads a recorded tree as if it were this host.
class FsRoot {
 public:
  explicit FsRoot(const std::string& root) { setenv("HWLOC_FSROOT", root.c_str(), 1); }
  ~FsRoot() { unsetenv("HWLOC_FSROOT"); }
  FsRoot(const FsRoot&) = delete;
  FsRoot& operator=(const FsRoot&) = delete;
};

std::vector<Ids> numbers(const Machine& machine) {
  std::vector<Ids> all;
  for (const Cpu& c : machine.cpus) all.push_back({c.id, c.core, c.package, c.smt, c.core_id, c.package_id});
  return all;
}

/// By CPU; those of CPUs whose node has no memory left out where `with_memory`, since XML leaves out such nodes.
std::map<int, int> node_of(const Machine& machine, const Machine& stated, bool with_memory) {
  std::map<int, int> found;
  for (const Cpu& c : machine.cpus)
    if (!with_memory || stated.nodes[stated.node_at(stated.cpu(c.id).node)].bytes != 0) found[c.id] = c.node;
  return found;
}

struct SameNode {
  int id;
  std::uint64_t bytes;
  Ids cpus;
  bool operator==(const SameNode&) const = default;
};

std::vector<SameNode> nodes(const Machine& machine, bool with_memory) {
  std::vector<SameNode> all;
  for (const Node& n : machine.nodes)
    if (!with_memory || n.bytes != 0) all.push_back({n.id, n.bytes.value_or(0), n.cpus});
  return all;
}

void expect_same(const Machine& found, const Machine& expected, const std::string& where, bool with_memory = false) {
  EXPECT_EQ(numbers(found), numbers(expected)) << where;
  EXPECT_EQ(node_of(found, expected, with_memory), node_of(expected, expected, with_memory)) << where;
  EXPECT_EQ(nodes(found, with_memory), nodes(expected, with_memory)) << where;
  if (expected.nodes.size() < 2 || found.nodes.size() != expected.nodes.size()) return;
  EXPECT_EQ(found.distance, expected.distance) << where;
  EXPECT_EQ(found.distance_from, expected.distance_from) << where;
}

/// What the sampler's header states of each CPU.
void expect_watched(const watch::Host& host, const watch::Board& board, const Machine& machine,
                    const std::string& where) {
  EXPECT_EQ(host.nodes.size(), machine.nodes.size()) << where;
  for (const Cpu& cpu : machine.cpus) {
    const auto at = std::find(host.cpus.begin(), host.cpus.end(), cpu.id);
    ASSERT_NE(at, host.cpus.end()) << where;
    const json& about = board.component("cpu", static_cast<std::size_t>(at - host.cpus.begin()));
    EXPECT_EQ(about.at("number"), cpu.id) << where;
    EXPECT_EQ(about.value("package", -1), cpu.package_id) << where;
    EXPECT_EQ(about.value("core", -1), cpu.core_id) << where;
    EXPECT_EQ(host.nodes.at(about.at("node").get<std::size_t>()), cpu.node) << where;
  }
}

TEST(Topology, IsTheSameFromEverySourceOfARecordedMachine) {
  for (const std::string& name : kRecorded) {
    const TemporaryFolder folder;
    if (!folder.unpack(name)) GTEST_SKIP() << "tar cannot unpack xz here";
    const std::string root = folder.path("root");
    const Machine tree = machine_of_tree(root);
    const bool memory_less = name == "memless-3";
    expect_same(machine_of(folder.path("hwloc.xml")), tree, name + ", XML", memory_less);
    const FsRoot as_host(root);
    expect_same(machine_of("host"), tree, name + ", as placement reads a host");
    expect_same(read_machine(load_host({.caches = true}).get(), "host"), tree, name + ", as instruments read a host");
    watch::Board board;
    expect_watched(watch::find_host(root, board), board, tree, name + ", as the sampler reads a host");
  }
}

TEST(Topology, OfThisHostIsTheSameForPlacementInstrumentsAndTheSampler) {
  const Machine placed = machine_of("host");
  expect_same(topology(), placed, "instruments");
  EXPECT_EQ(topology().allowed, placed.allowed);
  EXPECT_EQ(topology().memory_nodes, placed.memory_nodes);
  expect_same(machine_of_tree(""), placed, "tree");
  watch::Board board;
  expect_watched(watch::find_host("", board), board, placed, "sampler");
}

TEST(Topology, OfflineCpusAreOfNoCore) {
  const TemporaryFolder folder;
  if (!folder.unpack("smt-2-offline")) GTEST_SKIP() << "tar cannot unpack xz here";
  const Machine machine = machine_of_tree(folder.path("root"));
  EXPECT_EQ(machine.offline, (Ids{3, 6}));
  EXPECT_EQ(machine.allowed, (Ids{0, 1, 2, 4, 5, 7}));
  EXPECT_EQ(machine.cpu(7).smt, 0);  // its sibling is offline
  EXPECT_THROW(machine.cpu(3), UsageError);
  watch::Board board;
  const watch::Host host = watch::find_host(folder.path("root"), board);
  EXPECT_EQ(host.cpus, (Ids{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(host.node_of, (Ids{0, 0, 0, -1, 1, 1, -1, 1}));
  EXPECT_FALSE(board.component("cpu", 3).contains("package"));
}

// hwloc, too, reads trees; but of one without sysfs it describes the host it runs on.
TEST(Topology, OfATreeWithoutSysfsIsWhatProcStates) {
  const TemporaryFolder folder;
  folder.write("proc/stat", "cpu  9 0 0 9\ncpu4 1 0 0 1\ncpu0 1 0 0 1\nintr 5\n");
  folder.write("proc/meminfo", "MemFree: 1 kB\nMemTotal:       2048 kB\n");
  const Machine machine = machine_of_tree(folder.path(""));
  EXPECT_EQ(numbers(machine), (std::vector<Ids>{{0, 0, 0, 0, -1, -1}, {4, 1, 0, 0, -1, -1}}));
  EXPECT_EQ(nodes(machine, false), (std::vector<SameNode>{{0, 2048u << 10, {0, 4}}}));
  EXPECT_EQ(machine.distance_from, "");
  EXPECT_TRUE(machine_of_tree(folder.path("nothing")).cpus.empty());
}

TEST(Topology, OfAPartialTreeKeepsWhatIsStated) {
  const TemporaryFolder folder;
  folder.write("sys/devices/system/cpu/present", "0-3\n");
  folder.write("sys/devices/system/cpu/online", "0-2,9\n");
  folder.write("sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "0,2-3\n");  // nothing of CPU 0 itself
  folder.write("sys/devices/system/node/node1/cpulist", "0-1\n");
  folder.write("sys/devices/system/node/node1/distance", "10 20\n");
  folder.write("sys/devices/system/node/node4/cpulist", "1,3\n");  // CPU 1 again: the first node has it
  folder.write("sys/devices/system/node/node4/distance", "20\n");
  const Machine machine = machine_of_tree(folder.path(""));
  EXPECT_EQ(machine.offline, (Ids{3}));
  EXPECT_EQ(numbers(machine), (std::vector<Ids>{{0, 0, 0, 0, -1, -1}, {1, 1, 0, 0, -1, -1}, {2, 2, 0, 0, -1, -1}}));
  EXPECT_EQ(node_of(machine, machine, false), (std::map<int, int>{{0, 1}, {1, 1}, {2, 1}}));
  EXPECT_EQ(machine.nodes[1].bytes, std::nullopt);
  EXPECT_EQ(machine.distance_from, "") << "a row lacks a number";
  EXPECT_EQ(machine.distance, (std::vector<std::vector<double>>{{10, 20}, {20, 10}}));
}

TEST(FillOrder, RanksThreadsAmongTheCpusThatAreFilled) {
  const Machine machine = machine_of("pack:2 [numa] core:2 pu:2(indexes=0,4,1,5,2,6,3,7)");
  Ids all(8);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(fill_order(machine, "compact", all), (Ids{0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(fill_order(machine, "cores", all), (Ids{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(fill_order(machine, "spread", all), (Ids{0, 2, 1, 3, 4, 6, 5, 7}));
  EXPECT_EQ(fill_order(machine, "cores", {7, 4, 1, 5}), (Ids{4, 1, 7, 5}));  // 4 and 7 are alone on their cores
  EXPECT_THROW(fill_order(machine, "randomly", all), UsageError);
  EXPECT_THROW(fill_order(machine, "cores", {8}), UsageError);
}

TEST(FillOrder, SharesAreAdjacentAndTakeCoresFirst) {
  const Machine machine = machine_of("pack:2 [numa] core:2 pu:2(indexes=0,4,1,5,2,6,3,7)");
  Ids all(8);
  std::iota(all.begin(), all.end(), 0);
  const auto share = [&](std::size_t sharers, std::size_t place, std::size_t count) {
    return share_of_cpus(machine, all, sharers, place, count);
  };
  EXPECT_EQ(share(1, 0, 4), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(share(2, 0, 2), (Ids{0, 1}));
  EXPECT_EQ(share(2, 1, 2), (Ids{2, 3})) << "the other package, though the first has CPUs left";
  EXPECT_EQ(share(2, 1, 4), (Ids{2, 3, 6, 7}));
  EXPECT_EQ(share(4, 1, 2), (Ids{1, 5})) << "a core each";
  EXPECT_EQ(share(4, 3, 3), (Ids{3, 7, 3})) << "too few";
  EXPECT_EQ(share_of_cpus(machine, {4, 6}, 3, 0, 1), (Ids{4}));
  EXPECT_EQ(share_of_cpus(machine, {4, 6}, 3, 2, 2), (Ids{6, 6}));
}

TEST(Topology, CachesOfInstrumentsAreOfTheFirstAllowedCpu) {
  const Machine& machine = topology();
  for (std::size_t i = 1; i < machine.caches.size(); ++i)
    EXPECT_GT(machine.caches[i].level, machine.caches[i - 1].level);
  for (const CacheLevel& cache : machine.caches) EXPECT_EQ(machine.cache_bytes(cache.level), cache.bytes);
  EXPECT_EQ(machine.cache_bytes(17), 0U);
  EXPECT_GE(machine.all_last_level_bytes, machine.last_level_bytes());
}

}  // namespace
