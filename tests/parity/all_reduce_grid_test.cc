// SPDX-License-Identifier: Apache-2.0
// How messages are dealt to blocks; needs no GPU. That every block has a pack in every call is what
// makes two halves of a workspace enough.
#include <gtest/gtest.h>

#include "kernels/cuda/all_reduce.h"

namespace tandem::kernels {
namespace {

void expect_sound(const PeerGrid& grid, std::int32_t max_blocks) {
  ASSERT_GT(grid.clusters, 0);
  EXPECT_LE(grid.clusters, grid.rows);
  EXPECT_LE(grid.clusters * grid.cluster, max_blocks);
  EXPECT_EQ(grid.row_packs % grid.cluster, 0);
  EXPECT_GE(grid.row_packs / grid.cluster, 1);
  if (grid.threads == 0) return;
  EXPECT_EQ(grid.threads % 32, 0);
  EXPECT_LE(grid.threads, 512);
}

TEST(PeerGrid, FlatMessagesLeaveNoBlockEmpty) {
  for (const std::int32_t max_blocks : {2, 16, 42, 128})
    for (std::int64_t packs = 1; packs < 300000; packs += packs < 3000 ? 1 : 997) {
      const PeerGrid grid = flat_grid(packs, max_blocks);
      SCOPED_TRACE(packs);
      expect_sound(grid, max_blocks);
      const std::int64_t last_row = std::int64_t{grid.rows - 1} * grid.row_packs;
      ASSERT_LT(last_row, packs);
      ASSERT_GE(last_row + grid.row_packs, packs);
    }
}

TEST(PeerGrid, RowsAreSplitEvenly) {
  for (const std::int32_t max_blocks : {2, 16, 42, 128})
    for (const std::int64_t row_packs : {1, 8, 72, 90, 360, 512, 1024, 2048, 4096, 6144})
      for (const std::int64_t rows : {1, 2, 5, 16, 33, 64, 128, 500}) {
        SCOPED_TRACE(row_packs);
        const PeerGrid grid = row_grid(rows, row_packs, max_blocks);
        expect_sound(grid, max_blocks);
        EXPECT_EQ(grid.rows, rows);
        if (grid.threads > 0) {
          EXPECT_LE(row_packs / grid.cluster, grid.threads * 2);
        }
      }
}

TEST(PeerGrid, BlocksOfARowCanBeChosen) {
  EXPECT_EQ(row_grid(1, 512).cluster, 8);
  EXPECT_EQ(row_grid(4, 512).cluster, 1);
  EXPECT_EQ(row_grid(4, 1024).cluster, 2);  // A pack a thread.
  EXPECT_EQ(row_grid(4, 512, kPeerBlocks, 8).cluster, 8);
  EXPECT_EQ(row_grid(32, 512, kPeerBlocks, 8).cluster, 4);  // No more blocks than there are.
}

TEST(PeerGrid, DecodeMessagesFitEveryWay) {
  for (const std::int64_t hidden : {576, 4096, 8192})
    for (const std::int64_t rows : {1, 8, 64}) {
      EXPECT_TRUE(fits(PeerAlgorithm::kPull, row_grid(rows, hidden / 8)));
      EXPECT_TRUE(fits(PeerAlgorithm::kTwoShot, row_grid(rows, hidden / 8)));
    }
  EXPECT_TRUE(fits(PeerAlgorithm::kPush, row_grid(8, 1024)));
  EXPECT_TRUE(fits(PeerAlgorithm::kPush, row_grid(128, 512)));
  EXPECT_FALSE(fits(PeerAlgorithm::kPush, row_grid(129, 512)));
  EXPECT_TRUE(fits(PeerAlgorithm::kPush, flat_grid(1024 * 1024 / 16)));
  EXPECT_FALSE(fits(PeerAlgorithm::kPush, flat_grid(2 * 1024 * 1024 / 16)));
  EXPECT_TRUE(fits(PeerAlgorithm::kTwoShot, flat_grid(4 * 1024 * 1024 / 16)));
  EXPECT_FALSE(fits(PeerAlgorithm::kTwoShot, flat_grid(8 * 1024 * 1024 / 16)));
}

}  // namespace
}  // namespace tandem::kernels
