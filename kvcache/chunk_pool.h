// SPDX-License-Identifier: Apache-2.0
// Which chunks of the KV cache are in use, by number: reference counts, a free list, and how many
// are mapped. Chunk 0 is reserved (padding rows point to it) and never handed out. Numbers below
// `mapped()` are usable; the pool grows by whole segments and never shrinks. Recycled chunks are
// handed out before untouched ones. Host only, one caller.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tandem::kvcache {

class ChunkPool {
 public:
  /// Chunks mapped now, the most that can ever be mapped, and chunks per segment of growth (0: the
  /// pool cannot grow). Needs 1 <= mapped <= max.
  ChunkPool(std::int32_t mapped, std::int32_t max, std::int32_t growth);

  /// A chunk with one reference; nothing when every mapped chunk is in use.
  std::optional<std::int32_t> allocate();
  /// Adds a reference to a chunk in use.
  void retain(std::int32_t chunk);
  /// Drops a reference; the chunk is free again with the last one.
  void release(std::int32_t chunk);
  std::int32_t references(std::int32_t chunk) const;

  /// Asks for one more segment: `mapped()` rises. False when the pool is as large as it can be.
  bool grow();

  std::int32_t mapped() const { return mapped_; }
  std::int32_t max() const { return static_cast<std::int32_t>(references_.size()); }
  std::int32_t num_free() const;  ///< Mapped and not in use.
  /// Not in use, and not mapped but could be.
  std::int32_t num_obtainable() const;
  std::int32_t num_used() const { return mapped_ - 1 - num_free(); }

 private:
  std::int32_t mapped_, growth_;
  std::int32_t next_untouched_ = 1;
  std::vector<std::int32_t> recycled_;
  std::vector<std::int32_t> references_;
};

}  // namespace tandem::kvcache
