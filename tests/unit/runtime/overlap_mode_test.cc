// SPDX-License-Identifier: Apache-2.0
#include "runtime/overlap_mode.h"

#include <gtest/gtest.h>

#include "kernels/device/error.h"

namespace tandem::runtime {
namespace {

TEST(OverlapMode, WordsAndNothingElse) {
  EXPECT_EQ(parse_overlap("auto"), OverlapMode::kAuto);
  EXPECT_EQ(parse_overlap("on"), OverlapMode::kOn);
  EXPECT_EQ(parse_overlap("off"), OverlapMode::kOff);
  EXPECT_THROW(parse_overlap("yes"), ConfigError);
}

TEST(OverlapMode, ThresholdIsWhereEveryLargerStepWins) {
  EXPECT_EQ(choose_overlap_min_tokens({{256, 1.0, 1.2}, {512, 2.0, 1.9}, {1024, 4.0, 3.5}}), 512);
  EXPECT_EQ(choose_overlap_min_tokens({{256, 1.0, 0.8}, {512, 2.0, 2.1}, {1024, 4.0, 3.5}}), 1024);
  EXPECT_EQ(choose_overlap_min_tokens({{256, 1.0, 0.8}, {512, 2.0, 1.995}}), kNeverOverlap);
  EXPECT_EQ(choose_overlap_min_tokens({}), kNeverOverlap);
}

}  // namespace
}  // namespace tandem::runtime
