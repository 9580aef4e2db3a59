// SPDX-License-Identifier: Apache-2.0
#include "kvcache/prefix_index.h"

#include <algorithm>

#include "kernels/device/error.h"

namespace tandem::kvcache {
namespace {

constexpr std::size_t kTokens = kernels::kChunkTokens;

}  // namespace

std::uint64_t PrefixIndex::hash_chunk(NodeId parent, std::span<const std::int32_t> tokens) {
  auto hash = static_cast<std::uint64_t>(parent) * 0x9e3779b97f4a7c15ull;
  for (const std::int32_t token : tokens) {
    hash = (hash ^ static_cast<std::uint32_t>(token)) * 0xff51afd7ed558ccdull;
    hash ^= hash >> 32;
  }
  return hash;
}

PrefixIndex::Match PrefixIndex::match(std::span<const std::int32_t> tokens,
                                      std::int32_t max_chunks) {
  Match found;
  const std::size_t limit = std::min(tokens.size() / kTokens, static_cast<std::size_t>(max_chunks));
  for (std::size_t i = 0; i < limit; ++i) {
    const auto chunk_tokens = tokens.subspan(i * kTokens, kTokens);
    const NodeId id = find(found.node, hash_(found.node, chunk_tokens), chunk_tokens);
    if (id == kLost) break;
    Node& node = nodes_.at(id);
    if (!node.held) {
      unheld_.erase(node.place);
      node.held = true;
    }
    pool_.retain(node.chunk);
    found.chunks.push_back(node.chunk);
    found.node = id;
  }
  return found;
}

PrefixIndex::NodeId PrefixIndex::insert(NodeId parent, std::span<const std::int32_t> tokens,
                                        std::int32_t chunk) {
  TANDEM_ASSERT(tokens.size() == kTokens, "only full chunks are indexed, not ", tokens.size(),
                " tokens");
  if (parent != kRoot && !nodes_.contains(parent)) return kLost;
  const std::uint64_t hash = hash_(parent, tokens);
  if (const NodeId known = find(parent, hash, tokens); known != kLost) return known;
  TANDEM_ASSERT(!by_chunk_.contains(chunk), "chunk ", chunk, " is indexed already");
  pool_.retain(chunk);
  const NodeId id = next_id_++;
  Node& node = nodes_[id];
  node.parent = parent;
  node.hash = hash;
  node.chunk = chunk;
  std::copy(tokens.begin(), tokens.end(), node.tokens.begin());
  by_hash_.emplace(hash, id);
  by_chunk_.emplace(chunk, id);
  return id;
}

void PrefixIndex::release(std::int32_t chunk) {
  pool_.release(chunk);
  const auto known = by_chunk_.find(chunk);
  if (known == by_chunk_.end() || pool_.references(chunk) != 1) return;
  Node& node = nodes_.at(known->second);
  node.held = false;
  node.place = unheld_.insert(unheld_.end(), known->second);
}

bool PrefixIndex::evict() {
  if (unheld_.empty()) return false;
  const NodeId id = unheld_.front();
  unheld_.pop_front();
  const auto node = nodes_.find(id);
  const auto [begin, end] = by_hash_.equal_range(node->second.hash);
  by_hash_.erase(std::find_if(begin, end, [id](const auto& entry) { return entry.second == id; }));
  by_chunk_.erase(node->second.chunk);
  pool_.release(node->second.chunk);
  nodes_.erase(node);
  return true;
}

PrefixIndex::NodeId PrefixIndex::find(NodeId parent, std::uint64_t hash,
                                      std::span<const std::int32_t> tokens) const {
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto entry = begin; entry != end; ++entry) {
    const Node& node = nodes_.at(entry->second);
    if (node.parent == parent && std::equal(tokens.begin(), tokens.end(), node.tokens.begin())) {
      return entry->second;
    }
  }
  return kLost;
}

}  // namespace tandem::kvcache
