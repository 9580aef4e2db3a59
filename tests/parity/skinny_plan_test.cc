// SPDX-License-Identifier: Apache-2.0
// How a skinny matmul is cut into passes, stages and rings; needs no GPU. Where warpgroups take
// stages in turn, an odd ring would give a place to both by turns, and the parity that one waits
// for could be that of a round long past.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cuda/skinny.h"
#include "kernels/device/error.h"

namespace tandem::kernels {
namespace {

constexpr int kBlocks = 132, kSharedOfAnSm = 227 << 10, kFixedBytes = 36 << 10;

SkinnyArgs plan(int k, int boxes, int box_rows, int columns, bool beside_attention) {
  SkinnyArgs args{};
  args.m = columns;
  args.k = k;
  args.boxes = boxes;
  args.beside_attention = beside_attention;
  skinny_plan(args, kBlocks, box_rows, columns, kFixedBytes);
  return args;
}

void expect_sound(const SkinnyArgs& args, int box_rows) {
  const int rows = args.pass_boxes * box_rows, most = (args.boxes + kBlocks - 1) / kBlocks;
  EXPECT_GE(args.passes * args.pass_boxes, most);
  EXPECT_LT((args.passes - 1) * args.pass_boxes, std::max(1, most));
  EXPECT_LE(rows, 128);
  EXPECT_EQ(args.splits_k, rows <= 64);
  EXPECT_GE(args.stages * args.subs * kSkinnyK, args.k);
  EXPECT_LT((args.stages - 1) * args.subs * kSkinnyK, args.k);
  for (const int depth : {args.w_depth, args.x_depth}) {
    EXPECT_EQ(depth % 2, 0);
    EXPECT_GE(depth, 2);
    EXPECT_LE(depth, kSkinnyMaxDepth);
  }
  EXPECT_GE(args.early, 1);
  EXPECT_LE(args.early, std::min(args.w_depth, args.passes * args.stages));
  EXPECT_EQ(args.w_stage_bytes, rows * args.subs * 128);
  EXPECT_EQ(args.x_stage_bytes, args.m * args.subs * 128);
  EXPECT_GE(args.shared_bytes,
            args.w_depth * args.w_stage_bytes + args.x_depth * args.x_stage_bytes + kFixedBytes);
  EXPECT_LE(args.shared_bytes, args.beside_attention ? 152 << 10 : kSharedOfAnSm);
  // The last stage's rows as wgmma reads them.
  EXPECT_GE(args.shared_bytes,
            (args.w_depth - 1) * args.w_stage_bytes + (args.splits_k ? 64 : 128) * args.subs * 128);
}

TEST(SkinnyPlan, EveryShapeHasEvenRingsThatFit) {
  for (const int columns : {16, 32, 64})
    for (const bool beside_attention : {false, true})
      for (const int box_rows : {16, 32})
        for (const int k : {64, 576, 1792, 4096, 8192, 14336, 28672})
          for (int boxes = 1; boxes < 9000; boxes += boxes < 1200 ? 1 : 611) {
            SCOPED_TRACE(concat(columns, " columns, k ", k, ", ", boxes, " boxes of ", box_rows));
            expect_sound(plan(k, boxes, box_rows, columns, beside_attention), box_rows);
            if (HasFailure()) return;
          }
}

/// Llama-3-8B's down projection with 32 rows: two boxes a block, which the warpgroups share in K.
/// Its blocks wait long enough for the whole ring of W.
TEST(SkinnyPlan, DownProjection) {
  const SkinnyArgs args = plan(14336, 256, 16, 32, false);
  EXPECT_TRUE(args.splits_k);
  EXPECT_EQ(args.passes, 1);
  EXPECT_EQ(args.pass_boxes, 2);
  EXPECT_EQ(args.subs, 4);
  EXPECT_EQ(args.stages, 56);
  EXPECT_EQ(args.w_stage_bytes, 16 << 10);
  EXPECT_EQ(args.x_depth, 4);
  EXPECT_EQ(args.w_depth, 6);
  EXPECT_EQ(args.early, 6);
}

/// Its gate and up projections: seven boxes a block, in passes of four and three; both warpgroups
/// read every stage, which is twice as large.
TEST(SkinnyPlan, GateUpProjection) {
  const SkinnyArgs args = plan(4096, 896, 32, 32, false);
  EXPECT_FALSE(args.splits_k);
  EXPECT_EQ(args.passes, 2);
  EXPECT_EQ(args.pass_boxes, 4);
  EXPECT_EQ(args.subs, 2);
  EXPECT_EQ(args.stages, 32);
  EXPECT_EQ(args.w_stage_bytes, 32 << 10);
  EXPECT_EQ(args.x_depth, 8);
  EXPECT_EQ(args.early, 2);  // x comes next
}

}  // namespace
}  // namespace tandem::kernels
