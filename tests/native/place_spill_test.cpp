/// Warnings before a command starts whose memory would not fit on its nodes.
#include <gtest/gtest.h>

#include "place/binding/spill.hpp"
#include "temporary_folder.hpp"

namespace {

using mm::place::MemoryPolicy;
using mm::place::node_room;
using mm::place::NodeRoom;
using mm::place::spill_warning;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

TEST(Spill, CountsWhatTheKernelCanFree) {
  const TemporaryFolder folder;
  folder.write("sys/devices/system/node/node1/meminfo",
               "Node 1 MemTotal:       16384000 kB\nNode 1 MemFree:          200000 kB\n"
               "Node 1 Active(file):     30000 kB\nNode 1 Inactive(file):   20000 kB\n"
               "Node 1 SReclaimable:      1000 kB\nNode 1 Active(anon):  15000000 kB\n");
  const NodeRoom room = node_room(1, folder.path().string());
  EXPECT_EQ(room.bytes, std::uint64_t{16384000} << 10);
  EXPECT_EQ(room.available, std::uint64_t{251000} << 10);
  EXPECT_EQ(node_room(7, folder.path().string()).bytes, 0U);
}

TEST(Spill, WarnsIfTheNodesAreAlmostFullOrHaveLessThanNeeded) {
  MemoryPolicy bind;
  bind.policy = "bind";
  const NodeRoom full{16 * kGiB, kGiB / 2}, empty{16 * kGiB, 15 * kGiB};
  EXPECT_EQ(spill_warning({{0, full}}, 2, {}, 0),
            "node 0 has 512.0 MiB of 16384.0 MiB of memory available; further pages will be on other nodes");
  EXPECT_EQ(spill_warning({{0, full}}, 2, bind, 0),
            "node 0 has 512.0 MiB of 16384.0 MiB of memory available; when it is used up, the Linux kernel ends "
            "the command");
  EXPECT_EQ(spill_warning({{0, empty}, {1, full}}, 3, {}, 20 * kGiB),
            "nodes 0-1 have 15872.0 MiB of 32768.0 MiB of memory available, and the command needs 20480.0 MiB; further "
            "pages will be on other nodes");
  EXPECT_EQ(spill_warning({{0, empty}}, 2, {}, 0), "");
  EXPECT_EQ(spill_warning({{0, empty}}, 2, {}, 15 * kGiB), "");
  EXPECT_EQ(spill_warning({{0, full}}, 1, {}, kGiB), "");     // there is no other node
  EXPECT_EQ(spill_warning({{0, NodeRoom{}}}, 2, {}, 0), "");  // not stated
}

}  // namespace
