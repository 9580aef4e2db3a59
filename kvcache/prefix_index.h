// SPDX-License-Identifier: Apache-2.0
// Finds chunks of the cache that already hold the front of a prompt. A node is one full chunk of
// tokens and the node of the chunk before it, so equal nodes mean equal prefixes; a hash finds
// candidates, tokens and parent are then compared, so a collision can never be a hit. The index
// holds one reference to each chunk it knows; chunks nobody else holds are evicted least recently
// used. All sequences release their chunks through the index. Host only, one caller.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/step_view.h"
#include "kvcache/chunk_pool.h"

namespace tandem::kvcache {

class PrefixIndex {
 public:
  using NodeId = std::int64_t;
  static constexpr NodeId kRoot = 0;   ///< The empty prefix.
  static constexpr NodeId kLost = -1;  ///< A prefix that is no longer indexed.
  using Hash = std::uint64_t (*)(NodeId parent, std::span<const std::int32_t> tokens);

  static std::uint64_t hash_chunk(NodeId parent, std::span<const std::int32_t> tokens);

  explicit PrefixIndex(ChunkPool& pool, Hash hash = hash_chunk) : pool_(pool), hash_(hash) {}

  struct Match {
    std::vector<std::int32_t> chunks;  ///< In order of position, each retained for the caller.
    NodeId node = kRoot;               ///< Of the last chunk.
  };

  /// The longest known run of full chunks that the tokens begin with, at most `max_chunks`.
  Match match(std::span<const std::int32_t> tokens, std::int32_t max_chunks);

  /// Makes `chunk`, which holds the KV of these kChunkTokens tokens after the prefix `parent`,
  /// known. Returns its node, or that of an equal chunk known before (`chunk` then stays private),
  /// or kLost when `parent` has been evicted.
  NodeId insert(NodeId parent, std::span<const std::int32_t> tokens, std::int32_t chunk);

  /// Drops a sequence's reference. Release a sequence's last chunk first: the front of a prefix
  /// is worth more than its tail, and is then evicted later.
  void release(std::int32_t chunk);

  /// Forgets the least recently used chunk that no sequence holds, which frees it.
  bool evict();

  std::int32_t num_cached() const { return static_cast<std::int32_t>(nodes_.size()); }
  std::int32_t num_evictable() const { return static_cast<std::int32_t>(unheld_.size()); }

 private:
  struct Node {
    NodeId parent = kRoot;
    std::uint64_t hash = 0;
    std::int32_t chunk = 0;
    bool held = true;  ///< By some sequence; else in `unheld_`.
    std::list<NodeId>::iterator place;
    std::array<std::int32_t, kernels::kChunkTokens> tokens;
  };

  NodeId find(NodeId parent, std::uint64_t hash, std::span<const std::int32_t> tokens) const;

  ChunkPool& pool_;
  Hash hash_;
  NodeId next_id_ = kRoot + 1;
  std::unordered_map<NodeId, Node> nodes_;
  std::unordered_multimap<std::uint64_t, NodeId> by_hash_;
  std::unordered_map<std::int32_t, NodeId> by_chunk_;
  std::list<NodeId> unheld_;  ///< Least recently used first.
};

}  // namespace tandem::kvcache
