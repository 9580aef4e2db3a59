// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/skinny.h"
#include "kernels/device/error.h"

namespace tandem::kernels {
namespace {

constexpr int kMostRows = kSkinnyGroups * kSkinnyGroupRows;  // of W, of a pass
constexpr int kLine = kSkinnyK * 2;                          // bytes
constexpr int kWStage = 16 << 10;            // bytes of W, about, for what a stage costs
constexpr int kXInFlight = 64 << 10;         // bytes, for the way from L2
constexpr int kBesideAttention = 152 << 10;  // bytes of shared memory of a block
constexpr int kAlone = 220 << 10;

}  // namespace

void skinny_plan(SkinnyArgs& args, int blocks, int box_rows, int columns, int fixed_bytes) {
  const int most = std::max(1, (args.boxes + blocks - 1) / blocks), full = kMostRows / box_rows;
  args.passes = (most + full - 1) / full;
  args.pass_boxes = (most + args.passes - 1) / args.passes;
  const int rows = args.pass_boxes * box_rows;
  args.splits_k = rows <= kSkinnyGroupRows;
  const int room = (args.beside_attention ? kBesideAttention : kAlone) - fixed_bytes;
  const int w_line = rows * kLine, x_line = columns * kLine;
  args.subs = std::clamp(std::min((kWStage + w_line - 1) / w_line, room / (4 * x_line)), 1, 8);
  args.stages = (args.k / kSkinnyK + args.subs - 1) / args.subs;
  args.w_stage_bytes = args.subs * w_line;
  args.x_stage_bytes = args.subs * x_line;
  // Even depths: where warpgroups take stages in turn, a place in a ring is always the same one's,
  // which cannot be a round ahead of what it waits for.
  args.x_depth =
      std::clamp(std::min(kXInFlight, room / 2) / args.x_stage_bytes, 2, kSkinnyMaxDepth) & ~1;
  args.w_depth =
      std::min((room - args.x_depth * args.x_stage_bytes) / args.w_stage_bytes, kSkinnyMaxDepth) &
      ~1;
  TANDEM_ASSERT(args.w_depth >= 2, "a skinny matmul of ", columns, " columns has no ring");
  const int rings = args.w_depth * args.w_stage_bytes + args.x_depth * args.x_stage_bytes;
  // wgmma reads 64 rows, also where a stage has fewer.
  const int read = (args.w_depth - 1) * args.w_stage_bytes +
                   (args.splits_k ? 1 : kSkinnyGroups) * kSkinnyGroupRows * args.subs * kLine;
  args.shared_bytes = std::max(rings + fixed_bytes, read);
}

}  // namespace tandem::kernels
