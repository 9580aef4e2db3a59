// SPDX-License-Identifier: Apache-2.0
#include "kvcache/prefix_index.h"

#include <gtest/gtest.h>

#include "kernels/device/error.h"

namespace tandem::kvcache {
namespace {

using Tokens = std::vector<std::int32_t>;
constexpr int kC = kernels::kChunkTokens;

/// `chunks` chunks of tokens; chunk i is filled with values[i].
Tokens filled(std::initializer_list<int> values) {
  Tokens tokens;
  for (const int value : values) tokens.insert(tokens.end(), kC, value);
  return tokens;
}

/// Allocates and indexes all full chunks of the tokens; the caller holds one reference each.
std::vector<std::int32_t> fill(ChunkPool& pool, PrefixIndex& index, const Tokens& tokens) {
  std::vector<std::int32_t> chunks;
  auto node = PrefixIndex::kRoot;
  for (std::size_t i = 0; i + kC <= tokens.size(); i += kC) {
    chunks.push_back(*pool.allocate());
    node = index.insert(node, std::span(tokens).subspan(i, kC), chunks.back());
  }
  return chunks;
}

void release_all(PrefixIndex& index, const std::vector<std::int32_t>& chunks) {
  for (auto chunk = chunks.rbegin(); chunk != chunks.rend(); ++chunk) index.release(*chunk);
}

TEST(PrefixIndex, FindsTheLongestKnownPrefixOfFullChunks) {
  ChunkPool pool(10, 10, 0);
  PrefixIndex index(pool);
  const auto chunks = fill(pool, index, filled({1, 2, 3}));
  Tokens prompt = filled({1, 2, 9});
  EXPECT_EQ(index.match(prompt, 9).chunks, (Tokens{chunks[0], chunks[1]}));
  EXPECT_EQ(pool.references(chunks[0]), 3) << "sequence, index, match";
  EXPECT_EQ(index.match(filled({1, 2, 3}), 2).chunks.size(), 2u) << "limited";
  EXPECT_TRUE(index.match(filled({2, 3}), 9).chunks.empty()) << "not a prefix";
  prompt.resize(kC - 1);
  EXPECT_TRUE(index.match(prompt, 9).chunks.empty()) << "not full";
}

TEST(PrefixIndex, ACollisionIsNeverAHit) {
  ChunkPool pool(10, 10, 0);
  PrefixIndex index(
      pool, [](PrefixIndex::NodeId, std::span<const std::int32_t>) -> std::uint64_t { return 42; });
  const auto a = fill(pool, index, filled({1, 2}));
  const auto b = fill(pool, index, filled({3, 2}));
  EXPECT_EQ(index.match(filled({3, 2}), 9).chunks, b);
  EXPECT_EQ(index.match(filled({1, 2}), 9).chunks, a);
  EXPECT_TRUE(index.match(filled({2}), 9).chunks.empty());
  EXPECT_EQ(index.num_cached(), 4);
}

TEST(PrefixIndex, AnEqualChunkStaysPrivate) {
  ChunkPool pool(10, 10, 0);
  PrefixIndex index(pool);
  const auto first = fill(pool, index, filled({1, 2}));
  const auto second = fill(pool, index, filled({1, 2}));
  EXPECT_EQ(index.num_cached(), 2);
  release_all(index, second);
  EXPECT_EQ(pool.num_used(), 2);
  EXPECT_EQ(index.match(filled({1, 2}), 9).chunks, first);
}

TEST(PrefixIndex, EvictsUnheldChunksLeastRecentlyUsedTailFirst) {
  ChunkPool pool(10, 10, 0);
  PrefixIndex index(pool);
  const auto a = fill(pool, index, filled({1, 2}));
  const auto b = fill(pool, index, filled({3}));
  EXPECT_FALSE(index.evict()) << "all held";
  release_all(index, a);
  release_all(index, b);
  EXPECT_EQ(index.num_evictable(), 3);
  release_all(index, index.match(filled({1}), 1).chunks);  // a[0] becomes the youngest
  EXPECT_TRUE(index.evict());
  EXPECT_EQ(index.match(filled({1, 2}), 9).chunks, (Tokens{a[0]})) << "the tail of a went";
  EXPECT_TRUE(index.evict());
  EXPECT_TRUE(index.match(filled({3}), 9).chunks.empty()) << "then b";
  EXPECT_FALSE(index.evict()) << "a[0] is held by the match above";
  index.release(a[0]);
  EXPECT_TRUE(index.evict());
  EXPECT_EQ(pool.num_used(), 0);
  EXPECT_EQ(index.num_cached(), 0);
}

TEST(PrefixIndex, NothingIsIndexedAfterAnEvictedPrefix) {
  ChunkPool pool(10, 10, 0);
  PrefixIndex index(pool);
  const Tokens tokens = filled({1, 2});
  const std::int32_t shared = *pool.allocate();
  const auto node = index.insert(PrefixIndex::kRoot, std::span(tokens).first(kC), shared);
  index.release(shared);
  ASSERT_TRUE(index.evict());
  const std::int32_t next = *pool.allocate();
  EXPECT_EQ(index.insert(node, std::span(tokens).last(kC), next), PrefixIndex::kLost);
  EXPECT_EQ(index.insert(PrefixIndex::kLost, std::span(tokens).last(kC), next), PrefixIndex::kLost);
  index.release(next);
  EXPECT_EQ(pool.num_used(), 0);
}

TEST(PrefixIndex, OnlyFullChunks) {
  ChunkPool pool(3, 3, 0);
  PrefixIndex index(pool);
  EXPECT_THROW(index.insert(PrefixIndex::kRoot, Tokens(kC - 1), *pool.allocate()), InternalError);
}

}  // namespace
}  // namespace tandem::kvcache
