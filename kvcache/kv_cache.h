// SPDX-License-Identifier: Apache-2.0
// One rank's KV cache: chunks of 64 tokens of all layers, in a range of addresses that is reserved
// once and mapped as needed. Owns the memory, not the bookkeeping (ChunkPool does that on rank 0).
// `grow_to` may run on another thread than the one that launches kernels.
#pragma once

#include <cstdint>

#include "kernels/step_view.h"
#include "kvcache/virtual_range.h"

namespace tandem::kvcache {

/// The shape of one rank's chunks.
struct KvGeometry {
  std::int32_t num_layers = 0, num_kv_heads = 0, head_dim = 0;
  std::int32_t element_bytes = 0;

  /// Elements of one layer in a chunk: K and V of all heads.
  std::int64_t layer_stride() const {
    return std::int64_t{2} * num_kv_heads * kernels::kChunkTokens * head_dim;
  }
  std::int64_t chunk_stride() const { return layer_stride() * num_layers; }
  std::int64_t chunk_bytes() const { return chunk_stride() * element_bytes; }
  std::int64_t bytes_per_token() const { return chunk_bytes() / kernels::kChunkTokens; }
};

template <typename T, Device D>
class KvCache {
 public:
  /// Reserves addresses for `max_chunks`; maps nothing yet. Segments hold whole chunks.
  KvCache(const KvGeometry& geometry, std::int32_t max_chunks, std::int64_t segment_bytes)
      : geometry_(geometry),
        max_chunks_(max_chunks),
        range_(static_cast<std::size_t>(geometry.chunk_bytes() * max_chunks),
               static_cast<std::size_t>(segment_bytes)) {}

  std::int32_t max_chunks() const { return max_chunks_; }
  std::int32_t mapped_chunks() const {
    return static_cast<std::int32_t>(static_cast<std::int64_t>(range_.mapped_bytes()) /
                                     geometry_.chunk_bytes());
  }
  /// Chunks that one more segment brings.
  std::int32_t growth_chunks() const {
    return static_cast<std::int32_t>(static_cast<std::int64_t>(range_.segment_bytes()) /
                                     geometry_.chunk_bytes());
  }
  const KvGeometry& geometry() const { return geometry_; }

  /// Maps until `chunks` are usable. Throws Error when memory ends.
  void grow_to(std::int32_t chunks) {
    if (!range_.map_to(static_cast<std::size_t>(geometry_.chunk_bytes() * chunks)))
      throw Error(concat("the KV cache cannot grow to ", chunks, " chunks (",
                         geometry_.chunk_bytes() * chunks >> 20,
                         " MiB): memory ended; lower --kv-cache-memory or --gpu-memory-utilization"));
  }

  /// First byte of a chunk, for copies of whole chunks.
  T* chunk(std::int32_t number) const { return base() + number * geometry_.chunk_stride(); }

  kernels::KvView<T, D> view(const kernels::SlotView<D>& slots) const {
    return {base(),
            geometry_.chunk_stride(),
            geometry_.layer_stride(),
            geometry_.num_kv_heads,
            geometry_.head_dim,
            slots.chunk_table,
            slots.table_stride};
  }

 private:
  T* base() const { return reinterpret_cast<T*>(range_.data()); }

  KvGeometry geometry_;
  std::int32_t max_chunks_;
  VirtualRange<D> range_;
};

}  // namespace tandem::kvcache
