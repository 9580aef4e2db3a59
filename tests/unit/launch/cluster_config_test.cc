// SPDX-License-Identifier: Apache-2.0
#include "launch/cluster_config.h"

#include <gtest/gtest.h>

#include "kernels/device/error.h"
#include "launch/launch_command.h"
#include "support/config_error.h"

namespace tandem::launch {
namespace {

using Words = std::vector<std::string>;

constexpr const char* kTwoHosts = R"(# comment
[cluster]
name = two
launcher = mpirun

[hosts]
names = node[08-09],big
ranks_per_host = 2

[device]
kind = cpu

[links]
between_hosts = ethernet

[network]
interface = eth0

[environment]
OMP_PROC_BIND = true
)";

std::string error_of(const std::string& text) {
  return testing::config_error([&] { parse_cluster_config(text, "file.ini"); });
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(ClusterConfig, ReadsAFile) {
  const ClusterConfig config = parse_cluster_config(kTwoHosts, "file.ini");
  EXPECT_EQ(config.hosts, (Words{"node08", "node09", "big"}));
  EXPECT_EQ(config.num_hosts, 3);
  EXPECT_EQ(config.world_size(), 6);
  EXPECT_EQ(config.launcher, Launcher::kMpirun);
  EXPECT_EQ(config.environment.at(0).first, "OMP_PROC_BIND");
}

TEST(ClusterConfig, EveryShippedFileIsRight) {
  int count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(TANDEM_FIXTURES "/../../cluster_configs")) {
    if (entry.path().extension() != ".ini") continue;
    const ClusterConfig config = read_cluster_config(entry.path());
    EXPECT_EQ(config.name, entry.path().stem().string());
    EXPECT_FALSE(build_launch_line(config, 0, false, {"tandem", "doctor"}).words.empty());
    ++count;
  }
  EXPECT_GE(count, 8);
}

TEST(ClusterConfig, WrongFilesAreRefusedWithLineAndKey) {
  EXPECT_EQ(error_of(with(kTwoHosts, "ranks_per_host = 2", "ranks_per_hosts = 2")),
            "file.ini:8: [hosts] ranks_per_hosts: unknown key; did you mean ranks_per_host?");
  EXPECT_EQ(error_of(with(kTwoHosts, "[network]", "[networks]")),
            "file.ini:16: unknown section [networks]; did you mean network?");
  EXPECT_EQ(error_of(with(kTwoHosts, "ranks_per_host = 2", "ranks_per_host = two")),
            "file.ini:8: [hosts] ranks_per_host: \"two\" is no whole number of at least 1");
  EXPECT_EQ(error_of(with(kTwoHosts, "kind = cpu", "kind = tpu")),
            "file.ini:11: [device] kind: \"tpu\" is none of cpu, cuda");
  EXPECT_EQ(error_of(with(kTwoHosts, "kind = cpu", "memory_gib = -1")),
            "file.ini:11: [device] memory_gib: \"-1\" is no number above 0");
  EXPECT_EQ(error_of(with(kTwoHosts, "kind = cpu", "kind")),
            "file.ini:11: \"kind\" is no key; write key = value");
  EXPECT_EQ(error_of(with(kTwoHosts, "kind = cpu", "kind = cpu\nkind = cuda")),
            "file.ini:12: [device] kind: already set in line 11; remove one");
  EXPECT_EQ(error_of(with(kTwoHosts, "kind = cpu", "")),
            "file.ini: [device] kind: missing; add this key");
  EXPECT_EQ(error_of(with(kTwoHosts, "between_hosts = ethernet", "")),
            "file.ini: [links] between_hosts: several hosts need a link; write ethernet or "
            "infiniband");
  EXPECT_EQ(error_of(with(kTwoHosts, "launcher = mpirun", "launcher = local")),
            "file.ini:4: [cluster] launcher: local runs on one host, the file has 3; write mpirun "
            "or slurm");
  EXPECT_EQ(error_of("a = b\n"), "file.ini:1: a stands before the first [section]");
  EXPECT_EQ(error_of(with(kTwoHosts, "names = node[08-09],big", "count = 2")),
            "file.ini: [hosts] names: mpirun needs the names of the hosts; add for example names = "
            "node[0-1]");
}

TEST(ClusterConfig, HostLists) {
  EXPECT_EQ(expand_hosts("a"), Words{"a"});
  EXPECT_EQ(expand_hosts("n[1,3-4]x, b"), (Words{"n1x", "n3x", "n4x", "b"}));
  EXPECT_EQ(expand_hosts("n[009-010]"), (Words{"n009", "n010"}));
  for (const char* wrong :
       {"", "a,,b", "n[1-", "n[3-1]", "n[x]", "a,a", "a b", "n]1[", "n[1-999999]"})
    EXPECT_THROW(expand_hosts(wrong), ConfigError) << wrong;
}

TEST(LaunchLine, MpirunOverHosts) {
  const ClusterConfig config = parse_cluster_config(kTwoHosts, "file.ini");
  const LaunchLine line = build_launch_line(config, 4, false, {"tandem", "generate"});
  EXPECT_EQ(line.hostfile, "node08 slots=2\nnode09 slots=2\n");
  EXPECT_EQ(quoted(line.words),
            "mpirun -n 4 --hostfile '{hostfile}' --map-by ppr:2:node --bind-to none -x "
            "OMP_PROC_BIND tandem generate");
  EXPECT_EQ(line.environment.at(2).first, "OMPI_MCA_btl_tcp_if_include");
  EXPECT_THROW(build_launch_line(config, 7, false, {"tandem"}), ConfigError);
  EXPECT_THROW(build_launch_line(config, 5, false, {"tandem"}), ConfigError);
  EXPECT_THROW(build_launch_line(config, -1, false, {"tandem"}), ConfigError);
}

TEST(LaunchLine, SlurmInsideAndOutsideOfAnAllocation) {
  ClusterConfig config;
  config.name = "s";
  config.launcher = Launcher::kSlurm;
  config.num_hosts = 2;
  config.ranks_per_host = 8;
  config.device = "cuda";
  config.time_limit = "1:00";
  const Words command{"tandem", "generate", "--prompt", "it's"};
  EXPECT_EQ(quoted(build_launch_line(config, 0, true, command).words),
            "srun --mpi=pmix --kill-on-bad-exit=1 --nodes=2 --ntasks=16 --ntasks-per-node=8 "
            "--gpus-per-node=8 "
            "tandem generate --prompt 'it'\\''s'");
  EXPECT_EQ(quoted(build_launch_line(config, 2, false, {"tandem", "doctor"}).words),
            "sbatch --nodes=1 --ntasks=2 --ntasks-per-node=2 --gpus-per-node=2 --job-name=tandem "
            "--output=tandem-%j.out --time=1:00 '--wrap=srun --mpi=pmix --kill-on-bad-exit=1 "
            "--nodes=1 --ntasks=2 --ntasks-per-node=2 --gpus-per-node=2 tandem doctor'");
}

}  // namespace
}  // namespace tandem::launch
