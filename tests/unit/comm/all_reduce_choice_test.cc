// SPDX-License-Identifier: Apache-2.0
#include "comm/all_reduce_choice.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/device/error.h"

namespace tandem::comm {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

TEST(AllReduceChoice, EveryNameParsesBack) {
  for (const char* text : {"auto", "oneshot", "twoshot", "nccl"})
    EXPECT_EQ(name(parse_all_reduce(text)), text);
  EXPECT_THROW(parse_all_reduce("ring"), ConfigError);
}

TEST(AllReduceChoice, TableFollowsTheFastestWay) {
  const std::vector<AllReduceTiming> timings = {
      {4, 2.0, 3.0, 4.0, 6.0},          {8, 2.5, 3.0, 4.0, 6.0},  {16, 3.5, 3.2, 4.0, 6.5},
      {32, 2.0, 4.4, 4.3, 7.0},         {64, 9.0, 8.0, 5.0, 7.0}, {128, kNever, 20.0, 8.0, 7.9},
      {256, kNever, kNever, 20.0, 9.0},
  };
  // At 32 push is fast again by accident; pull is within 3 % of two-shot; 128 is a tie.
  EXPECT_EQ(choose_table(timings), (AllReduceTable{8, 32, 128}));
}

TEST(AllReduceChoice, WaysThatNeverWinGetNothing) {
  const std::vector<AllReduceTiming> timings = {{4, 9, 9, 9, 1}, {8, 9, 9, 9, 1}};
  EXPECT_EQ(choose_table(timings), AllReduceTable{});
  const std::vector<AllReduceTiming> two_shot = {{4, 9, 9, 1, 9}, {8, 9, 9, 1, 9}};
  EXPECT_EQ(choose_table(two_shot), (AllReduceTable{0, 0, 8}));
}

TEST(AllReduceChoice, DefaultsShrinkWithRanks) {
  for (int ranks = 2; ranks < 8; ++ranks) {
    const AllReduceTable small = default_all_reduce_table(ranks),
                         large = default_all_reduce_table(ranks + 1);
    EXPECT_GE(small.push_bytes, large.push_bytes);
    EXPECT_GE(small.pull_bytes, large.pull_bytes);
  }
}

}  // namespace
}  // namespace tandem::comm
