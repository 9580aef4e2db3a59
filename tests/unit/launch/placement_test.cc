// SPDX-License-Identifier: Apache-2.0
#include "launch/placement.h"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "kernels/device/error.h"
#include "launch/cpu_binding.h"
#include "launch/network_card.h"

namespace tandem::launch {
namespace {

/// Two NUMA nodes of two cores of two hardware threads: node 0 has cpus 0 1 4 5, core 0 = {0, 4}.
std::vector<CpuInfo> eight_cpus() {
  return {{0, 0, 0}, {4, 0, 0}, {1, 1, 0}, {5, 1, 0}, {2, 2, 1}, {6, 2, 1}, {3, 3, 1}, {7, 3, 1}};
}

std::vector<int> all_cpus() {
  std::vector<int> cpus(8);
  std::iota(cpus.begin(), cpus.end(), 0);
  return cpus;
}

TEST(CpuBinding, ListsReadAndWritten) {
  EXPECT_EQ(parse_cpu_list("0-2,5,8-9"), (std::vector<int>{0, 1, 2, 5, 8, 9}));
  EXPECT_TRUE(parse_cpu_list("").empty());
  EXPECT_EQ(cpu_list_text({9, 8, 0, 1, 2, 5}), "0-2,5,8-9");
}

TEST(CpuBinding, EqualSetsAreDividedByWholeCores) {
  const std::vector<std::vector<int>> allowed(2, all_cpus());
  const std::vector<int> nodes(2, -1);
  EXPECT_EQ(cpu_list_text(share_of_cpus(eight_cpus(), allowed, nodes, 0)), "0-1,4-5");
  EXPECT_EQ(cpu_list_text(share_of_cpus(eight_cpus(), allowed, nodes, 1)), "2-3,6-7");
  EXPECT_EQ(count_cores(eight_cpus(), {0, 4, 1}), 2);
}

TEST(CpuBinding, RanksStayNextToTheirGpu) {
  const std::vector<std::vector<int>> allowed(3, all_cpus());
  const std::vector<int> nodes{1, 0, 1};
  EXPECT_EQ(cpu_list_text(share_of_cpus(eight_cpus(), allowed, nodes, 0)), "2,6");
  EXPECT_EQ(cpu_list_text(share_of_cpus(eight_cpus(), allowed, nodes, 1)), "0-1,4-5");
  EXPECT_EQ(cpu_list_text(share_of_cpus(eight_cpus(), allowed, nodes, 2)), "3,7");
}

TEST(CpuBinding, ThreeRanksOnFourCoresUseAllOfThem) {
  const std::vector<std::vector<int>> allowed(3, all_cpus());
  const std::vector<int> nodes(3, -1);
  std::vector<int> used;
  for (int r = 0; r < 3; ++r)
    for (const int cpu : share_of_cpus(eight_cpus(), allowed, nodes, r)) used.push_back(cpu);
  EXPECT_EQ(cpu_list_text(used), "0-7");
  EXPECT_EQ(used.size(), 8u) << "no CPU belongs to two ranks";
}

TEST(CpuBinding, CrowdedHostsPinNobody) {
  const std::vector<std::vector<int>> allowed(5, all_cpus());
  const std::vector<int> nodes(5, -1);
  for (int r = 0; r < 5; ++r) EXPECT_EQ(share_of_cpus(eight_cpus(), allowed, nodes, r), all_cpus());
}

TEST(CpuBinding, BindingsMadeBySrunAreKept) {
  const std::vector<std::vector<int>> allowed{{0, 4}, {3, 7}};
  EXPECT_EQ(share_of_cpus(eight_cpus(), allowed, {-1, -1}, 1), (std::vector<int>{3, 7}));
}

TEST(CpuBinding, ThisHostHasATopology) {
  const auto topology = read_topology();
  ASSERT_FALSE(topology.empty());
  const auto own = affinity_of(0);
  ASSERT_FALSE(own.empty());
  EXPECT_TRUE(bind_to(own));
  EXPECT_EQ(affinity_of(0), own);
}

DeviceReport gpus(int count) {
  DeviceReport report;
  report.built_with_cuda = true;
  for (int i = 0; i < count; ++i) {
    DeviceInfo info;
    info.ordinal = i;
    info.uuid = "GPU-" + std::to_string(i);
    report.devices.push_back(info);
  }
  return report;
}

TEST(Placement, GpusAreDealtInTurn) {
  EXPECT_EQ(choose_gpu(gpus(4), 3, 4, false), 3);
  EXPECT_EQ(choose_gpu(gpus(1), 3, 4, false), 0) << "one visible GPU per task";
  EXPECT_EQ(choose_gpu(gpus(2), 3, 4, true), 1);
  EXPECT_THROW(choose_gpu(gpus(2), 3, 4, false), ConfigError);
  EXPECT_THROW(choose_gpu(gpus(0), 0, 1, false), ConfigError);
}

Place place(int rank, const char* host, const char* uuid) {
  Place result;
  result.rank = rank;
  result.host = host;
  result.gpu = uuid[0] == '\0' ? -1 : rank;
  result.gpu_uuid = uuid;
  result.gpu_name = "H200";
  result.cpus = {rank};
  result.nic = "eth0";
  return result;
}

TEST(Placement, TwoRanksOnOneGpuAreNamed) {
  refuse_shared_gpus({place(0, "a", ""), place(1, "a", "")});
  refuse_shared_gpus({place(0, "a", "x"), place(1, "a", "y")});
  try {
    refuse_shared_gpus({place(0, "a", "x"), place(1, "a", "y"), place(2, "a", "x")});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()).find("ranks 0 and 2 both have GPU x on host a"), 0u)
        << error.what();
  }
}

TEST(Placement, TableShowsLinks) {
  std::vector<Place> places{place(0, "a", "x"), place(1, "a", "y"), place(2, "b", "z")};
  places[0].peer_uuids = places[1].peer_uuids = {"x", "y"};
  places[0].nvlink_uuids = {"y"};
  EXPECT_EQ(placement_table(places),
            "rank  host  device      numa  cores  cpus  nic   links\n"
            "0     a     GPU 0 H200  -     1      0     eth0  1: NVLink; 2: network\n"
            "1     a     GPU 1 H200  -     1      1     eth0  0: PCIe peer access; 2: network\n"
            "2     b     GPU 2 H200  -     1      2     eth0  0, 1: network\n");
  places[1].peer_uuids.clear();
  EXPECT_EQ(link_between(places[1], places[0]), "through the host");
}

TEST(NetworkCard, ActiveRdmaCardsOfTheNodeComeFirst) {
  const auto root = std::filesystem::path(testing::TempDir()) / "sys_class";
  const auto add = [&](const std::string& name, const char* state, const char* node) {
    const auto folder = root / "infiniband" / name;
    std::filesystem::create_directories(folder / "ports/1");
    std::filesystem::create_directories(folder / "device");
    std::ofstream(folder / "ports/1/state") << state;
    std::ofstream(folder / "ports/1/rate") << "400 Gb/sec (4X NDR)";
    std::ofstream(folder / "device/numa_node") << node;
  };
  add("mlx5_0", "1: DOWN", "0");
  add("mlx5_1", "4: ACTIVE", "0");
  add("mlx5_2", "4: ACTIVE", "1");
  const auto cards = network_cards("", root);
  ASSERT_GE(cards.size(), 2u);
  EXPECT_EQ(describe(cards[0]), "mlx5_1 400 Gb/s");
  EXPECT_EQ(nearest_card(cards, 1)->name, "mlx5_2");
  EXPECT_EQ(nearest_card(cards, -1)->name, "mlx5_1");
  EXPECT_EQ(nearest_card({}, 0), nullptr);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace tandem::launch
