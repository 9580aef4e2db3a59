// SPDX-License-Identifier: Apache-2.0
#include "kvcache/chunk_pool.h"

#include <gtest/gtest.h>

#include <set>

#include "kernels/device/error.h"

namespace tandem::kvcache {
namespace {

TEST(ChunkPool, HandsOutEveryMappedChunkOnceAndNeverChunkZero) {
  ChunkPool pool(5, 9, 3);
  std::set<std::int32_t> seen;
  while (const auto chunk = pool.allocate()) seen.insert(*chunk);
  EXPECT_EQ(seen, (std::set<std::int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_EQ(pool.num_obtainable(), 4);
  EXPECT_EQ(pool.num_used(), 4);
}

TEST(ChunkPool, GrowsBySegmentsUpToTheMaximum) {
  ChunkPool pool(2, 6, 3);
  EXPECT_TRUE(pool.grow());
  EXPECT_EQ(pool.mapped(), 5);
  EXPECT_TRUE(pool.grow());
  EXPECT_EQ(pool.mapped(), 6);
  EXPECT_FALSE(pool.grow());
  EXPECT_EQ(pool.num_free(), 5);
  ChunkPool fixed(2, 6, 0);
  EXPECT_FALSE(fixed.grow());
  EXPECT_EQ(fixed.num_obtainable(), 1);
}

TEST(ChunkPool, FreesAChunkWithItsLastReference) {
  ChunkPool pool(3, 3, 0);
  const std::int32_t a = *pool.allocate();
  pool.retain(a);
  pool.release(a);
  EXPECT_EQ(pool.references(a), 1);
  EXPECT_EQ(pool.num_free(), 1);
  pool.release(a);
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_EQ(pool.allocate(), a) << "recycled chunks first";
}

TEST(ChunkPool, MisuseIsAnInternalError) {
  ChunkPool pool(3, 3, 0);
  EXPECT_THROW(pool.release(1), InternalError);
  EXPECT_THROW(pool.retain(1), InternalError);
  EXPECT_THROW(pool.release(0), InternalError);
  EXPECT_THROW(pool.references(3), InternalError);
  EXPECT_THROW(ChunkPool(0, 3, 1), InternalError);
}

}  // namespace
}  // namespace tandem::kvcache
