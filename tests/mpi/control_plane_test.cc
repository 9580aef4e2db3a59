// SPDX-License-Identifier: Apache-2.0
#include "comm/control_plane.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "kernels/device/error.h"
#include "support/mpi_world.h"

namespace tandem::comm {
namespace {

using Clock = std::chrono::steady_clock;

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(ControlPlane, BroadcastsAnySize) {
  ControlPlane control(tandem::testing::world());
  for (const std::size_t size : {0u, 1u, 2039u, 2040u, 2041u, 70000u}) {
    std::vector<std::byte> bytes;
    if (control.rank() == 0)
      for (std::size_t i = 0; i < size; ++i) bytes.push_back(static_cast<std::byte>(i % 251));
    else
      bytes.assign(3, std::byte{9});  // what was there before must not survive
    control.broadcast(bytes);
    ASSERT_EQ(bytes.size(), size);
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(bytes[i], static_cast<std::byte>(i % 251));
  }
}

TEST(ControlPlane, GathersStringsOfDifferentLengths) {
  ControlPlane control(tandem::testing::world());
  const auto text_of = [](int rank) {
    return std::string(static_cast<std::size_t>(rank * 3), static_cast<char>('a' + rank));
  };
  const auto texts = control.all_gather(text_of(control.rank()));
  ASSERT_EQ(texts.size(), static_cast<std::size_t>(control.size()));
  for (int r = 0; r < control.size(); ++r)
    EXPECT_EQ(texts[static_cast<std::size_t>(r)], text_of(r));
}

TEST(ControlPlane, MinAndMax) {
  ControlPlane control(tandem::testing::world());
  const std::int64_t big = std::int64_t{1} << 40;
  EXPECT_EQ(control.min(big + control.rank()), big);
  EXPECT_EQ(control.max(big + control.rank()), big + control.size() - 1);
}

TEST(ControlPlane, BarrierWaitsForTheLast) {
  ControlPlane control(tandem::testing::world());
  const auto now = [] { return Clock::now().time_since_epoch().count(); };
  if (control.rank() == control.size() - 1)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto before = now();  // one clock for all: the ranks share a host
  control.barrier();
  const auto after = now();
  EXPECT_GE(after, control.max(before));
}

TEST(ControlPlane, TogetherNamesTheRankThatFailed) {
  ControlPlane control(tandem::testing::world());
  const int bad = control.size() - 1;
  const std::string name = control.size() == 1 ? "" : concat("rank ", bad, ": ");
  try {
    control.together([&] { TANDEM_REQUIRE(control.rank() != bad, "no such file; name another"); });
    FAIL() << "rank " << control.rank() << " did not notice";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.what(), name + "no such file; name another");
  }
}

TEST(ControlPlane, TogetherKeepsTheKindAndTheSentenceOfAll) {
  ControlPlane control(tandem::testing::world());
  try {
    control.together([] { throw MpiError("broken", 3); });
    FAIL();
  } catch (const ConfigError&) {
    FAIL() << "a fault of the machine is no ConfigError";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "broken");
  }
  EXPECT_NO_THROW(control.together([] {}));
}

TEST(ControlPlane, WorkOfRank0AloneFailsOnAllWithoutNamingIt) {
  ControlPlane control(tandem::testing::world());
  bool ran = false;
  control.on_first([&] { ran = true; });
  EXPECT_EQ(ran, control.rank() == 0);
  try {
    control.on_first([] { throw ConfigError("no such file; name another"); });
    FAIL() << "rank " << control.rank() << " did not notice";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "no such file; name another");
  }
}

TEST(ControlPlane, NoMemoryIsAFaultThatTheUserCanMend) {
  ControlPlane control(tandem::testing::world());
  EXPECT_THROW(control.together([] { throw std::bad_alloc(); }), ConfigError);
}

TEST(ControlPlane, IdleFollowersSleep) {
  ControlPlane control(tandem::testing::world());
  if (control.size() == 1) GTEST_SKIP() << "one rank never waits";
  // The best of three, because what else runs on a core makes the same work dearer.
  double share = 1;
  for (int attempt = 0; attempt < 3; ++attempt) {
    control.barrier();
    const double cpu_before = cpu_seconds();
    const auto start = Clock::now();
    if (control.rank() == 0) std::this_thread::sleep_for(std::chrono::seconds(1));
    std::vector<std::byte> plan(100);
    control.broadcast(plan);
    const std::chrono::duration<double> wall = Clock::now() - start;
    share = std::min(share, (cpu_seconds() - cpu_before) / wall.count());
  }
  EXPECT_LT(share, 0.02) << "of a core while waiting for a plan";
  RecordProperty("cpu_share_percent", static_cast<int>(share * 100));
}

}  // namespace
}  // namespace tandem::comm
