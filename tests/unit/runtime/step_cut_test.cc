// SPDX-License-Identifier: Apache-2.0
#include "runtime/step_cut.h"

#include <gtest/gtest.h>

namespace tandem::runtime {
namespace {

using Begins = std::vector<std::int32_t>;

std::vector<PrefillSegment> segments(const std::vector<int>& lengths) {
  std::vector<PrefillSegment> result;
  for (const int length : lengths)
    result.emplace_back().tokens.resize(static_cast<std::size_t>(length));
  return result;
}

TEST(StepCut, InsideOneSequence) {
  const StepCut cut = cut_step(0, segments({7}));
  EXPECT_EQ(cut.row, 4);
  EXPECT_EQ(cut.segment_begin[0], (Begins{0, 4}));
  EXPECT_EQ(cut.segment_begin[1], (Begins{0, 3}));
  EXPECT_EQ(cut.longest[0], 4);
  EXPECT_EQ(cut.longest[1], 3);
}

TEST(StepCut, BetweenSequencesAndInsideTheSecond) {
  const StepCut between = cut_step(0, segments({5, 5}));
  EXPECT_EQ(between.row, 5);
  EXPECT_EQ(between.segment_begin[0], (Begins{0, 5}));
  EXPECT_EQ(between.segment_begin[1], (Begins{0, 5}));
  const StepCut inside = cut_step(2, segments({3, 6, 5}));
  EXPECT_EQ(inside.row, 8);
  EXPECT_EQ(inside.segment_begin[0], (Begins{2, 5, 8}));
  EXPECT_EQ(inside.segment_begin[1], (Begins{0, 3, 8}));
  EXPECT_EQ(inside.longest[1], 5);
}

TEST(StepCut, DecodeRowsStayInTheFirstHalf) {
  const StepCut cut = cut_step(20, segments({4}));
  EXPECT_EQ(cut.row, 20);
  EXPECT_EQ(cut.segment_begin[0], (Begins{20}));
  EXPECT_EQ(cut.segment_begin[1], (Begins{0, 4}));
}

TEST(StepCut, LargeStepsAreCutAtAQueryTile) {
  EXPECT_EQ(cut_step(0, segments({8192})).row, 4096);
  EXPECT_EQ(cut_step(0, segments({8000})).row, 3968);
  EXPECT_EQ(cut_step(3, segments({1500, 1500})).row, 1503);  // the nearest tile of the first
  EXPECT_EQ(cut_step(0, segments({100, 3000})).row, 100 + 1408);
}

TEST(StepCut, NothingToCut) {
  EXPECT_EQ(cut_step(5, {}).row, 5);
  EXPECT_EQ(cut_step(0, segments({1})).row, 1);
}

}  // namespace
}  // namespace tandem::runtime
