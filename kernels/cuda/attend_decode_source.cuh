// SPDX-License-Identifier: Apache-2.0
// Which keys and values one block of decode attention reads, and their way into shared memory. A
// row's chunks are dealt to splits by the tokens of the whole batch; the warps of a block take
// tiles of 16 tokens in turn, each with its own ring of cp.async stages. Device code only.
#pragma once

#include "kernels/cuda/attend_tile.cuh"
#include "kernels/step_view.h"

namespace tandem::kernels {

inline constexpr int kDecodeWarps = 4;
inline constexpr int kDecodeTileTokens = 16;  // of one warp; a chunk is 4 tiles
inline constexpr int kDecodeStages = 2;  // 70 KB at head size 128: room for a matmul's block beside
inline constexpr int kDecodeMaxQHeads = 256;
inline constexpr int kDecodeGroupRows = 16;
inline constexpr int kDecodeMinChunks = 2;    // of a split
inline constexpr int kDecodeWholeChunks = 4;  // of a row that is not split: to combine takes longer

template <typename E>
struct DecodeParams {
  const std::int32_t* positions;
  const std::int32_t* slots;
  const std::int32_t* chunk_table;
  const std::int32_t* kv_head_of_q;
  const E* q;
  std::int64_t q_stride;
  const E* kv_base;  // of the layer
  std::int64_t chunk_stride, value_offset;
  E* out;
  std::int64_t out_stride;
  float* partial;  // [rows, q_heads, splits, head_dim] then [rows, q_heads, splits, 2]
  float* partial_stats;
  std::int32_t* counters;  // [rows, kv_heads], zero before and after
  ScoreScale score;
  int table_stride, num_q_heads, num_rows, window, target_blocks;
};

template <typename E, int kDim>
struct DecodeShared {
  using Tile = AttendTile<E, kDim, kDecodeTileTokens>;
  static constexpr int kStageElements = 2 * kDecodeTileTokens * Tile::kPitch;
  static constexpr int kRingBytes = kDecodeWarps * kDecodeStages * kStageElements * sizeof(E);
  static constexpr int kMergeBytes = kDecodeWarps * kDecodeGroupRows * kDim * sizeof(float);
  static constexpr int kBytes = kRingBytes > kMergeBytes ? kRingBytes : kMergeBytes;
};

/// The chunks that one split of one row reads; equal over blocks of the row.
struct Share {
  int splits, begin, end;
};

/// Splits are dealt by the tokens of the whole batch, so that ragged rows end together.
template <typename E>
__device__ Share share_of(const DecodeParams<E>& p, int first_chunk, int chunks) {
  const int lane = threadIdx.x % 32;
  int total = 0;
  for (int row = lane; row < p.num_rows; row += 32) {
    const int position = __ldcg(p.positions + row);
    const int begin = p.window > 0 ? max(0, position + 1 - p.window) : 0;
    total += position < 0 ? 0 : position / kChunkTokens - begin / kChunkTokens + 1;
  }
  total = __reduce_add_sync(0xffffffffu, total) * gridDim.y;
  const int per_block = max(kDecodeMinChunks, (total + p.target_blocks - 1) / p.target_blocks);
  const int wanted =
      chunks <= kDecodeWholeChunks ? min(chunks, 1) : (chunks + per_block - 1) / per_block;
  const int splits = min(static_cast<int>(gridDim.x), wanted);
  const int split = blockIdx.x;
  if (splits == 0) return {0, 0, 0};
  return {splits, first_chunk + chunks * split / splits,
          first_chunk + chunks * (split + 1) / splits};
}

/// Numbers of the query heads that use `kv_head`; returns how many. By warp 0, then a barrier.
__device__ __forceinline__ int list_heads(const std::int32_t* kv_head_of_q, int num_q_heads,
                                          int kv_head, std::int16_t* heads, int* count) {
  if (threadIdx.x < 32) {
    const int lane = threadIdx.x;
    int found = 0;
    for (int base = 0; base < num_q_heads; base += 32) {
      const int head = base + lane;
      const bool mine = head < num_q_heads && kv_head_of_q[head] == kv_head;
      const unsigned votes = __ballot_sync(0xffffffffu, mine);
      if (mine) heads[found + __popc(votes & ((1u << lane) - 1))] = static_cast<std::int16_t>(head);
      found += __popc(votes);
    }
    if (lane == 0) *count = found;
  }
  __syncthreads();
  return *count;
}

/// One warp's asynchronous copy of one tile of K and V; tokens at or past `length` become zeros.
template <typename E, int kDim>
__device__ void fetch_tile(const E* keys, std::int64_t value_offset, int first, int length, E* to) {
  constexpr int kPieces = kDim / 8;
  constexpr int kPitch = DecodeShared<E, kDim>::Tile::kPitch;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = lane; i < kDecodeTileTokens * kPieces; i += 32) {
    const int token = i / kPieces, piece = i % kPieces;
    const bool take = first + token < length;
    const E* from = keys + token * kDim + piece * 8;
    E* shared = to + token * kPitch + piece * 8;
    copy16_async(shared, from, take);
    copy16_async(shared + kDecodeTileTokens * kPitch, from + value_offset, take);
  }
}

/// One warp's tiles of the split: tile w, w + 4, ... counted from the split's first chunk.
template <typename E, int kDim>
struct TileSource {
  static constexpr int kStageElements = DecodeShared<E, kDim>::kStageElements;
  static constexpr int kTilesPerChunk = kChunkTokens / kDecodeTileTokens;
  const DecodeParams<E>& p;
  const std::int32_t* table;
  const E* head_base;
  E* ring;
  int key_begin, tiles, warp, length;

  __device__ TileSource(const DecodeParams<E>& params, const Share& share, int slot, int kv_head,
                        int row_length, E* warp_ring)
      : p(params),
        table(params.chunk_table + std::int64_t{slot} * params.table_stride),
        head_base(params.kv_base + std::int64_t{kv_head} * kChunkTokens * kDim),
        ring(warp_ring),
        key_begin(share.begin * kChunkTokens),
        tiles((min(row_length, share.end * kChunkTokens) - key_begin + kDecodeTileTokens - 1) /
              kDecodeTileTokens),
        warp(static_cast<int>(threadIdx.x) / 32),
        length(row_length) {}
  __device__ int count() const { return (tiles - warp + kDecodeWarps - 1) / kDecodeWarps; }
  __device__ int first_key(int i) const {
    return key_begin + (warp + i * kDecodeWarps) * kDecodeTileTokens;
  }
  __device__ E* stage(int i) const { return ring + i % kDecodeStages * kStageElements; }
  __device__ const E* keys(int first) const {
    return head_base + __ldcg(table + first / kChunkTokens) * p.chunk_stride +
           first / kDecodeTileTokens % kTilesPerChunk * kDecodeTileTokens * kDim;
  }
  /// One group of copies, also past the end; tokens at or past `limit` become zeros.
  __device__ void fetch(int i, int limit) const {
    if (i < count())
      fetch_tile<E, kDim>(keys(first_key(i)), p.value_offset, first_key(i), limit, stage(i));
    copies_commit();
  }
  /// The first tiles, without the row's own token.
  __device__ void fetch_early() const {
    for (int i = 0; i < kDecodeStages - 1; ++i) fetch(i, length - 1);
  }
  /// After the wait: the row's own token, if its tile was fetched early. Returns whether it was.
  __device__ bool complete_early() const {
    const int last = tiles - 1, i = (last - warp) / kDecodeWarps;
    if (last < warp || (last - warp) % kDecodeWarps != 0 || i >= kDecodeStages - 1 ||
        first_key(i) + kDecodeTileTokens < length)
      return false;
    copies_wait<0>();  // the zeros of this token must not land after its values
    __syncwarp();
    constexpr int kPieces = kDim / 8, kPitch = DecodeShared<E, kDim>::Tile::kPitch;
    const int token = length - 1 - first_key(i), lane = threadIdx.x % 32;
    const E* from = keys(first_key(i)) + token * kDim;
    for (int piece = lane; piece < 2 * kPieces; piece += 32) {
      const int is_value = piece / kPieces, at = piece % kPieces * 8;
      copy16_async(stage(i) + (is_value * kDecodeTileTokens + token) * kPitch + at,
                   from + is_value * p.value_offset + at, true);
    }
    copies_commit();
    return true;
  }
};

/// Adds all tiles of the source, whose first kDecodeStages - 1 are under way; `drain`: there are
/// more groups of copies than tiles.
template <typename E, int kDim>
__device__ void run_tiles(const TileSource<E, kDim>& source, bool drain, int window,
                          const ScoreScale& score, typename DecodeShared<E, kDim>::Tile& tile) {
  const int length = source.length, first = window > 0 ? max(0, length - window) : 0;
  const KeyRange range[2] = {{first, length}, {first, length}};
  for (int i = 0; i < source.count(); ++i) {
    if (drain) copies_wait<0>();
    source.fetch(i + kDecodeStages - 1, length);
    if (!drain) copies_wait<kDecodeStages - 1>();
    __syncwarp();
    const E* stage = source.stage(i);
    tile.add(stage, stage + TileSource<E, kDim>::kStageElements / 2, source.first_key(i), range,
             score);
    __syncwarp();
  }
  copies_wait<0>();
  tile.finish();
}

}  // namespace tandem::kernels
