// SPDX-License-Identifier: Apache-2.0
#include "launch/host_checks.h"

#include <gtest/gtest.h>

namespace tandem::launch {
namespace {

HostFacts healthy(int rank, const char* host) {
  HostFacts facts;
  facts.rank = rank;
  facts.host = host;
  facts.boot_id = std::string("boot of ") + host;
  facts.versions = {{"tandem", "1"}, {"MPI", "4"}};
  facts.shm_total_bytes = facts.shm_free_bytes = std::int64_t{8} << 30;
  facts.memlock_bytes = facts.stack_bytes = -1;
  facts.open_files = 65536;
  facts.cores = 8;
  facts.ranks_on_host = 2;
  facts.interfaces = {"eth0 10.0.0.1"};
  return facts;
}

std::vector<HostFacts> two_hosts() {
  return {healthy(0, "a"), healthy(1, "a"), healthy(2, "b"), healthy(3, "b")};
}

Check find(const std::vector<Check>& checks, const std::string& topic) {
  for (const Check& check : checks)
    if (check.topic == topic) return check;
  ADD_FAILURE() << "no check of " << topic;
  return {};
}

TEST(HostChecks, HealthyHostsAreGreen) {
  const auto checks = check_hosts(two_hosts(), false);
  EXPECT_EQ(worst(checks), Health::kGreen) << checks_text(checks, false);
  EXPECT_EQ(find(checks, "ranks").detail, "4 ranks on 2 hosts: a, b");
}

TEST(HostChecks, VersionsThatDifferNameTheRanks) {
  auto facts = two_hosts();
  facts[3].versions["MPI"] = "5.0";
  facts[2].versions["CUDA driver"] = "13.0";
  const auto checks = check_hosts(facts, false);
  EXPECT_EQ(find(checks, "MPI").health, Health::kRed);
  EXPECT_EQ(find(checks, "MPI").detail, "4: rank 0, rank 1, rank 2; 5.0: rank 3");
  EXPECT_EQ(find(checks, "CUDA driver").health, Health::kYellow);
}

TEST(HostChecks, SmallSharedMemory) {
  auto facts = two_hosts();
  facts[2].shm_free_bytes = 64 << 20;
  const Check check = find(check_hosts(facts, false), "/dev/shm");
  EXPECT_EQ(check.health, Health::kYellow);
  EXPECT_NE(check.detail.find("on b"), std::string::npos) << check.detail;
  EXPECT_NE(check.fix.find("--ipc=host"), std::string::npos);
  facts[2].shm_free_bytes = 16 << 20;
  EXPECT_EQ(find(check_hosts(facts, false), "/dev/shm").health, Health::kRed);
}

TEST(HostChecks, LockedMemoryMattersOnlyWithRdma) {
  auto facts = two_hosts();
  facts[0].memlock_bytes = 64 << 10;
  EXPECT_EQ(find(check_hosts(facts, false), "memlock").health, Health::kGreen);
  facts[0].rdma = true;
  EXPECT_EQ(find(check_hosts(facts, false), "memlock").health, Health::kRed);
}

TEST(HostChecks, LimitsCoresAndLeftOvers) {
  auto facts = two_hosts();
  facts[1].open_files = 1024;
  facts[1].stack_bytes = 1 << 20;
  facts[1].ranks_on_host = 9;
  facts[1].stale_shared_files = {"/dev/shm/vader_segment.a.0.1.0"};
  const auto checks = check_hosts(facts, false);
  for (const char* topic : {"open files", "stack", "cores", "left-overs"})
    EXPECT_EQ(find(checks, topic).health, Health::kYellow) << topic;
  EXPECT_EQ(find(checks, "left-overs").fix, "rm /dev/shm/vader_segment.a.0.1.0");
}

TEST(HostChecks, OneRankInAnAllocationOfMany) {
  std::vector<HostFacts> facts{healthy(0, "a")};
  facts[0].environment["SLURM_NTASKS"] = "4";
  const Check check = find(check_hosts(facts, false), "ranks");
  EXPECT_EQ(check.health, Health::kYellow);
  EXPECT_EQ(check.fix, "start all tasks of the allocation: srun --mpi=pmix -n 4 tandem doctor");
}

TEST(HostChecks, MachinesThatShareAName) {
  auto facts = two_hosts();
  for (auto& item : facts) item.host.assign("node");
  EXPECT_EQ(find(check_hosts(facts, false), "ranks").health, Health::kRed);
}

TEST(HostChecks, ContainerBridgesBetweenHosts) {
  auto facts = two_hosts();
  facts[2].bridges = {"docker0"};
  EXPECT_EQ(find(check_hosts(facts, false), "interfaces").health, Health::kYellow);
  facts[2].environment["OMPI_MCA_btl_tcp_if_include"] = "eth0";
  EXPECT_EQ(find(check_hosts(facts, false), "interfaces").health, Health::kGreen);
}

TEST(HostChecks, Gpus) {
  auto facts = two_hosts();
  for (auto& item : facts) item.gpus = std::vector<std::string>{"H200 GPU-0", "H200 GPU-1"};
  EXPECT_EQ(find(check_hosts(facts, true), "peer access").health, Health::kGreen);
  EXPECT_EQ(find(check_hosts(facts, true), "peer access").detail,
            "between all visible GPUs, over NVLink");
  facts[2].pcie_peers = {"GPU 0 and GPU 1"};
  EXPECT_EQ(find(check_hosts(facts, true), "peer access").detail,
            "between all visible GPUs, over PCIe between GPU 0 and GPU 1 of b");
  facts[1].no_peer_access = {"GPU 0 and GPU 1"};
  EXPECT_EQ(find(check_hosts(facts, true), "peer access").detail,
            "none between GPU 0 and GPU 1 of a");
  facts[3].nccl_libraries = {"/usr/lib/libnccl.so.2", "/opt/libnccl.so.2"};
  EXPECT_EQ(find(check_hosts(facts, true), "NCCL copies").health, Health::kRed);
  facts[3].gpu_problem = "no driver";
  EXPECT_EQ(find(check_hosts(facts, true), "GPUs").detail, "rank 3 (host b): no driver");
}

TEST(HostChecks, FactsSurviveTheJourney) {
  HostFacts facts = healthy(3, "b");
  facts.rdma = true;
  facts.bridges = {"docker0"};
  facts.nccl_libraries = {"x"};
  facts.environment = {{"NCCL_DEBUG", "WARN"}};
  facts.gpus = {"g"};
  facts.gpu_problem = "no driver";
  facts.no_peer_access = {"q"};
  facts.pcie_peers = {"r"};
  facts.stale_shared_files = {"s"};
  EXPECT_EQ(to_text(host_facts_from(to_text(facts))), to_text(facts));
}

TEST(BandwidthCheck, BelowAThirdOfTheLinkIsYellow) {
  const std::vector<CollectiveRow> rows{{"cpu", 8192, 10, 0.5}, {"cpu", 1 << 20, 100, 12}};
  EXPECT_EQ(check_bandwidth(rows, "nvlink", 0).health, Health::kGreen);
  EXPECT_EQ(check_bandwidth(rows, "nvlink", 39).health, Health::kGreen);
  EXPECT_EQ(check_bandwidth(rows, "nvlink", 41).health, Health::kYellow);
}

}  // namespace
}  // namespace tandem::launch
