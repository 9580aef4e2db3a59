// SPDX-License-Identifier: Apache-2.0
#include "runtime/host_memory.h"

#include <gtest/gtest.h>

#include "tests/support/model_files.h"
#include "tests/support/temporary_folder.h"

namespace tandem::runtime {
namespace {

namespace fs = std::filesystem;
using namespace tandem::testing;

class HostMemory : public ::testing::Test {
 protected:
  void put(const fs::path& path, const std::string& text) {
    fs::create_directories((folder_.path() / path).parent_path());
    write_file(folder_.path() / path, text);
  }
  std::int64_t available() const { return available_host_bytes(folder_.path()); }

  TemporaryFolder folder_;
};

TEST_F(HostMemory, IsWhatTheKernelCallsAvailable) {
  EXPECT_EQ(available(), 0);
  put("proc/meminfo", "MemTotal:  9000 kB\nMemFree:  10 kB\nMemAvailable:   5000 kB\n");
  EXPECT_EQ(available(), 5000 * 1024);
}

TEST_F(HostMemory, EveryControlGroupAboveCounts) {
  put("proc/meminfo", "MemAvailable: 5000 kB\n");
  put("proc/self/cgroup", "0::/job/rank\n");
  put("sys/fs/cgroup/job/rank/memory.max", "max\n");
  put("sys/fs/cgroup/job/rank/memory.current", "100\n");
  EXPECT_EQ(available(), 5000 * 1024);
  put("sys/fs/cgroup/job/memory.max", "1000000\n");
  put("sys/fs/cgroup/job/memory.current", "400000\n");
  EXPECT_EQ(available(), 600000);
  put("sys/fs/cgroup/job/memory.stat", "file 9\ninactive_file 50000\n");
  EXPECT_EQ(available(), 650000);
  put("sys/fs/cgroup/job/memory.current", "2000000\n");
  EXPECT_EQ(available(), 0);
}

TEST_F(HostMemory, VersionOneGroups) {
  put("proc/meminfo", "MemAvailable: 5000 kB\n");
  put("proc/self/cgroup", "3:cpu:/x\n2:hugetlb,memory:/box\n");
  put("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "3000000\n");
  put("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "1000000\n");
  EXPECT_EQ(available(), 2000000);
}

TEST_F(HostMemory, ReadsThisMachine) {
  EXPECT_GT(available_host_bytes(), 1 << 20);
  EXPECT_GT(peak_resident_bytes(), 1 << 20);
  put("proc/self/status", "Name: x\nVmHWM:\t    2048 kB\n");
  EXPECT_EQ(peak_resident_bytes(folder_.path()), 2048 * 1024);
}

}  // namespace
}  // namespace tandem::runtime
