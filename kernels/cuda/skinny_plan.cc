// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/skinny.h"
#include "kernels/device/error.h"

namespace tandem::kernels {
namespace {

constexpr int kMostRows = kSkinnyGroups * kSkinnyGroupRows;  // of W, of a pass
constexpr int kLine = kSkinnyK * 2;                          // bytes
// Measured on an H200. Bytes of a stage of W, for what a stage costs: about, and where a block is
// alone and has many rows of W, at most. Bytes of x under way from L2: where it has few rows, x is
// as much as they are.
constexpr int kWStage = 16 << 10, kWStageOfMany = 32 << 10;
constexpr int kXBesideMany = 64 << 10, kXBesideFew = 96 << 10;
constexpr int kEarly = 2;                    // stages of W copied before the wait
constexpr int kBesideAttention = 152 << 10;  // bytes of shared memory of a block
constexpr int kAlone = 220 << 10;

}  // namespace

void skinny_plan(SkinnyArgs& args, int blocks, int box_rows, int columns, int fixed_bytes) {
  args.share = BlockShare(args.boxes, blocks);
  const int most = std::max(1, args.share.most()), full = kMostRows / box_rows;
  args.passes = (most + full - 1) / full;
  args.pass_boxes = (most + args.passes - 1) / args.passes;
  const int rows = args.pass_boxes * box_rows;
  args.splits_k = rows <= kSkinnyGroupRows;
  const int room = (args.beside_attention ? kBesideAttention : kAlone) - fixed_bytes;
  const int w_line = rows * kLine, x_line = columns * kLine;
  const int most_subs = args.splits_k || args.beside_attention ? (kWStage + w_line - 1) / w_line
                                                               : kWStageOfMany / w_line;
  args.subs = std::clamp(std::min(most_subs, room / (4 * x_line)), 1, 8);
  args.stages = (args.k / kSkinnyK + args.subs - 1) / args.subs;
  args.w_stage_bytes = args.subs * w_line;
  args.x_stage_bytes = args.subs * x_line;
  // Even depths: where warpgroups take stages in turn, a place in a ring is always the same one's,
  // which cannot be a round ahead of what it waits for.
  const int x_room = std::min(args.splits_k ? kXBesideFew : kXBesideMany, room / 2);
  args.x_depth = std::clamp(x_room / args.x_stage_bytes, 2, kSkinnyMaxDepth) & ~1;
  args.w_depth =
      std::min((room - args.x_depth * args.x_stage_bytes) / args.w_stage_bytes, kSkinnyMaxDepth) &
      ~1;
  TANDEM_ASSERT(args.w_depth >= 2, "a skinny matmul of ", columns, " columns has no ring");
  // x would queue behind the stages that are under way. The down projection's blocks have the time:
  // they start while the last of a longer matmul end.
  const bool waits_long = args.splits_k && !args.beside_attention;
  args.early = std::min(waits_long ? args.w_depth : kEarly, args.passes * args.stages);
  const int rings = args.w_depth * args.w_stage_bytes + args.x_depth * args.x_stage_bytes;
  // wgmma reads 64 rows, also where a stage has fewer.
  const int read = (args.w_depth - 1) * args.w_stage_bytes +
                   (args.splits_k ? 1 : kSkinnyGroups) * kSkinnyGroupRows * args.subs * kLine;
  args.shared_bytes = std::max(rings + fixed_bytes, read);
}

}  // namespace tandem::kernels
