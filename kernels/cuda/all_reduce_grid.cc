// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/all_reduce.h"

namespace tandem::kernels {
namespace {

constexpr std::int64_t kMaxThreads = 512;
constexpr std::int64_t kMaxPacksPerThread = 2;  // Rows that are normed stay in registers.

std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

PeerGrid flat_grid(std::int64_t packs, std::int32_t max_blocks) {
  const std::int64_t part = round_up((packs + max_blocks - 1) / max_blocks, 32);
  PeerGrid grid;
  grid.row_packs = static_cast<std::int32_t>(std::clamp<std::int64_t>(part, 64, kMaxThreads));
  grid.rows = static_cast<std::int32_t>((packs + grid.row_packs - 1) / grid.row_packs);
  grid.clusters = std::min(grid.rows, max_blocks);
  grid.threads = grid.row_packs;
  return grid;
}

PeerGrid row_grid(std::int64_t rows, std::int64_t row_packs, std::int32_t max_blocks,
                  std::int32_t row_blocks) {
  PeerGrid grid;
  grid.rows = static_cast<std::int32_t>(rows);
  grid.row_packs = static_cast<std::int32_t>(row_packs);
  // A single row is split while each block keeps a warp's work. Several rows are not: starting many
  // clusters takes longer than a block takes for a row (`all_reduce_bench` shows both).
  constexpr std::int32_t kMaxCluster = 8;
  const std::int32_t wanted = row_blocks > 0 ? row_blocks : rows == 1 ? kMaxCluster : 1;
  while (grid.cluster * 2 <= std::min(wanted, kMaxCluster) && row_packs % (grid.cluster * 2) == 0 &&
         row_packs / (grid.cluster * 2) >= 32 && rows * grid.cluster * 2 <= max_blocks)
    grid.cluster *= 2;
  // Rows with more packs than a block has threads are split anyway; then fewer run at a time.
  while (grid.cluster < kMaxCluster && grid.cluster * 2 <= max_blocks &&
         row_packs % (grid.cluster * 2) == 0 && row_packs / grid.cluster > kMaxThreads)
    grid.cluster *= 2;
  grid.clusters =
      static_cast<std::int32_t>(std::min<std::int64_t>(rows, max_blocks / grid.cluster));
  const std::int64_t part = row_packs / grid.cluster;
  const std::int64_t threads = std::min(kMaxThreads, round_up(part, 32));
  grid.threads = part <= threads * kMaxPacksPerThread ? static_cast<std::int32_t>(threads) : 0;
  return grid;
}

bool fits(PeerAlgorithm algorithm, const PeerGrid& grid) {
  const std::int64_t capacity =
      algorithm == PeerAlgorithm::kPush ? PeerLayout::kPushPacks : PeerLayout::kPullPacks;
  return grid.threads > 0 && grid.clusters > 0 && grid.packs_per_block() <= capacity;
}

}  // namespace tandem::kernels
