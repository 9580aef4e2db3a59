// SPDX-License-Identifier: Apache-2.0
// What all roles of the prefill attention kernel agree on: tile sizes, the layout of shared memory,
// kernel parameters, and the description of one piece of work.
//
// One block = one producer warpgroup (its first warp works) and `kConsumers` consumer warpgroups of
// 64 query rows. A piece of work is one query tile of one head; its keys are walked in tiles of 128
// from the last to the first, so that masked tiles come first. FlashAttention-3: Shah et al. 2024,
// arXiv 2407.08608.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/attend.h"

namespace tandem::kernels::prefill {

inline constexpr int kWarp = 32;
inline constexpr int kWarpgroup = 128;
inline constexpr int kConsumers = 2;
inline constexpr int kRows = 64 * kConsumers;   ///< Query rows of a tile.
static_assert(kRows == kPrefillTileTokens);
inline constexpr int kKeys = 2 * kChunkTokens;  ///< Keys of a tile: two chunks.
inline constexpr int kThreads = kWarpgroup * (1 + kConsumers);
inline constexpr int kMaxSegments = 512;       ///< Of one launch.
inline constexpr int kHalfColumns = 64;        ///< Columns of a 128-byte row.
inline constexpr int kProducerRegisters = 40;  ///< Sum over warpgroups: 504 = 3 * 168.
inline constexpr int kConsumerRegisters = 232;

template <int kHeadDim>
struct TileBytes {
  static constexpr int kHalves = kHeadDim / kHalfColumns;
  static constexpr int kStages = kHeadDim == 128 ? 2 : 4;
  static constexpr int kRowBytes = 2 * kHalfColumns;
  static constexpr int kChunkHalf = kChunkTokens * kRowBytes;  ///< One TMA box.
  static constexpr int kKeysHalf = kKeys * kRowBytes;          ///< 64 columns of a K or V tile.
  static constexpr int kQueryHalf = kRows * kRowBytes;
  static constexpr int kKeyTile = kHalves * kKeysHalf;
  static constexpr int kQueryTile = kHalves * kQueryHalf;
};

/// One piece of work as the consumers see it.
struct Work {
  std::int32_t row = 0;         ///< First row in the token buffer.
  std::int32_t rows = 0;        ///< Valid rows, at most kRows.
  std::int32_t position = 0;    ///< Of the first row.
  std::int32_t kv_tokens = 0;   ///< Keys of the sequence after this step: the segment's end.
  std::int32_t head = 0;        ///< Query head.
  std::int32_t tile_begin = 0;  ///< First key tile that any row sees.
  std::int32_t tile_end = 0;    ///< One past the last; 0: inert rows, which get zeros.
  std::int32_t valid = 0;       ///< 0: no work is left.
  std::int32_t split = 0;       ///< Which part of the keys.
};

/// Query tile t of a segment has level `first + t`: about its number of key tiles.
struct Levels {
  std::uint16_t first, last;
};

struct Barriers {
  std::uint64_t q_full, q_empty;
  std::uint64_t k_full[4], k_empty[4], v_full[4], v_empty[4];
};

/// Tiles are `[half][row][64]`, so a half is a run of swizzled 128-byte rows.
template <int kHeadDim>
struct alignas(1024) SharedMemory {
  using Bytes = TileBytes<kHeadDim>;
  std::uint8_t q[Bytes::kQueryTile];
  std::uint8_t k[Bytes::kStages][Bytes::kKeyTile];
  std::uint8_t v[Bytes::kStages][Bytes::kKeyTile];
  std::uint8_t out[Bytes::kQueryTile];  ///< `[row][head_dim]`, 16-byte units swizzled.
  Barriers barriers;
  Work work;
  Levels levels[kMaxSegments];
};

/// Cycles summed over the consumer warpgroups of all blocks.
struct WaitCycles {
  unsigned long long total, query, key, value;
};

struct Params {
  CUtensorMap q;   ///< (dim, head, row), box (64, 1, kRows)
  CUtensorMap kv;  ///< (dim, token, k|v and head, chunk) of one layer, box (64, 64, 1, 1)
  const std::int32_t* segment_begin;
  const std::int32_t* positions;
  const std::int32_t* slots;
  const std::int32_t* chunk_table;
  const std::int32_t* kv_head_of_q;
  void* out;
  std::int64_t out_stride;   ///< Elements.
  std::uint32_t* next_work;  ///< Zero at launch.
  WaitCycles* waits;         ///< Counting kernels only.
  std::int32_t table_stride, num_segments, num_q_heads, num_kv_heads;
  std::int32_t heads_per_section;  ///< Heads that go together, so that their K and V stay in L2.
  std::int32_t window;             ///< 0: all keys.
  /// Few query tiles with many keys leave SMs idle: then the keys of a tile are dealt to `splits`
  /// blocks, whose unnormalised sums [rows, heads, splits, head_dim] and (maximum in the exp2
  /// domain, sum of weights) a second kernel joins (Flash-Decoding, Dao et al. 2023).
  float* partial;
  float2* partial_stats;
  std::int32_t splits, first_row;
  float scale_log2;  ///< Of q.k, times log2(e).
};

}  // namespace tandem::kernels::prefill
