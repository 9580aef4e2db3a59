// SPDX-License-Identifier: Apache-2.0
// Which keys and values one block of decode attention reads, and their way into shared memory. A
// row's tiles of 16 tokens are dealt to clusters, to their blocks and, in turn, to the warps of a
// block. A warp has room for one tile, whose keys and values are refilled as soon as each is used:
// the warps are many, so that enough is under way. Device code only.
#pragma once

#include "kernels/cuda/attend_decode_tile.cuh"
#include "kernels/step_view.h"

namespace tandem::kernels {

inline constexpr int kDecodeMaxQHeads = 256;
inline constexpr int kDecodeMaxCluster = 8;  // portable
inline constexpr int kDecodeFewTiles = 4;    // of a block, before another of its cluster has any
inline constexpr int kDecodeMinTiles = 64;   // of a block, before its row has another cluster
/// Bytes of a layer's keys and values, with all rows as long as this one, from which on they are
/// kept from filling L2. Less may stay there until the next step, or does no harm.
inline constexpr std::int64_t kDecodeFillsL2 = 8 << 20;

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
  float* partial;  // [rows, q_heads, clusters, head_dim] then [rows, q_heads, clusters, 2]
  float* partial_stats;
  std::int32_t* counters;  // [rows, kv_heads], zero before and after
  ScoreScale score;
  int table_stride, num_q_heads, num_kv_heads, num_rows, window;
  int cluster_shift;  // log2 of the blocks of one
  int target_blocks;  // of all rows together, when they are long
};

/// Tiles [begin, end) are this block's. The first `blocks` blocks of the row's first `clusters`
/// clusters have any; zero clusters: an inert row.
struct DecodeShare {
  int clusters = 0, blocks = 0, begin = 0, end = 0;
};

/// The first tile of a row that sees anything.
__device__ __forceinline__ int first_tile(int window, int length) {
  return (window > 0 ? max(0, length - window) : 0) / kDecodeTileTokens;
}
__device__ __forceinline__ int tiles_of(int window, int length) {
  return length <= 0 ? 0 : (length - 1) / kDecodeTileTokens - first_tile(window, length) + 1;
}

/// Clusters are dealt by the tokens of the whole batch, so that ragged rows end together.
template <typename E>
__device__ int clusters_of(const DecodeParams<E>& p, int tiles) {
  if (gridDim.z == 1) return 1;
  int total = 0;
  for (int row = threadIdx.x % 32; row < p.num_rows; row += 32)
    total += tiles_of(p.window, __ldcg(p.positions + row) + 1);
  total = __reduce_add_sync(0xffffffffu, total) * p.num_kv_heads;
  const int per_block = max(kDecodeMinTiles, (total + p.target_blocks - 1) / p.target_blocks);
  return min(static_cast<int>(gridDim.z), max(1, tiles / (per_block << p.cluster_shift)));
}

template <typename E>
__device__ DecodeShare share_of(const DecodeParams<E>& p, int length) {
  const int tiles = tiles_of(p.window, length);
  if (tiles == 0) return {};
  const int clusters = clusters_of(p, tiles), number = blockIdx.z;
  if (number >= clusters) return {clusters, 0, 0, 0};
  const int begin = tiles / clusters * number + min(number, tiles % clusters);
  const int count = tiles / clusters + (number < tiles % clusters);
  const int rank = blockIdx.x & ((1 << p.cluster_shift) - 1);
  const int blocks = min(1 << p.cluster_shift, (count + kDecodeFewTiles - 1) / kDecodeFewTiles);
  if (rank >= blocks) return {clusters, blocks, 0, 0};
  const int each = count / blocks, more = count % blocks;
  const int from = first_tile(p.window, length) + begin + rank * each + min(rank, more);
  return {clusters, blocks, from, from + each + (rank < more)};
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

/// One warp's tiles: every kWarps-th of the block's.
template <typename E, int kDim, int kSets>
class TileSource {
 public:
  using Shape = DecodeShape<kDim, kSets>;
  int tile;  ///< The first; past `end`: none.
  const int end, length;
  const std::uint32_t keys_at, values_at;  ///< Of this warp's tile in shared memory.

  __device__ TileSource(const DecodeParams<E>& p, const DecodeShare& share, int slot, int kv_head,
                        int row_length, const void* stages)
      : tile(share.begin + static_cast<int>(threadIdx.x) / 32),
        end(share.end),
        length(row_length),
        keys_at(shared_address(stages) + threadIdx.x / 32 * Shape::kTileBytes),
        values_at(keys_at + Shape::kTileBytes / 2),
        p_(p),
        table_(p.chunk_table + std::int64_t{slot} * p.table_stride),
        head_(p.kv_base + std::int64_t{kv_head} * kChunkTokens * kDim),
        policy_(std::int64_t{length} * p.num_rows * p.num_kv_heads * (2 * kDim * 2) > kDecodeFillsL2
                    ? read_once()
                    : read_again()) {}

  /// The first tile, before the wait without the row's own token.
  __device__ void fetch_first(bool with_own) {
    if (tile < end) {
      next_ = keys(tile, __ldcg(table_ + tile / kTilesPerChunk));
      fetch(next_, tile, keys_at, with_own);
      fetch(next_ + p_.value_offset, tile, values_at, with_own);
      look_ahead(tile);
    }
    copies_commit();
  }
  /// Before the wait: where the row's own token goes, if it is in the warp's first tile.
  __device__ void aim_at_own() {
    const int own = length - 1 - tile * kDecodeTileTokens;
    const int i = threadIdx.x % 32, is_value = i / kOwnLanes, piece = i % kOwnLanes;
    own_ = tile < end && own < kDecodeTileTokens ? next_ : nullptr;
    if (own_ == nullptr) return;
    own_ += is_value * p_.value_offset + own * kDim + piece * 8;
    own_at_ = keys_at + is_value * (Shape::kTileBytes / 2) + 2 * Shape::place(own, piece);
    hold(own_at_);
    hold(own_);
  }
  /// After it.
  __device__ void fetch_own() const {
    if (own_ != nullptr) {
      const int piece = threadIdx.x % kOwnLanes;
#pragma unroll
      for (int i = 0; i < Shape::kPieces; i += kOwnLanes)  // pieces are exchanged within 8
        if (piece + i < Shape::kPieces) copy16_async(own_at_ + i * 16, own_ + i * 8);
    }
    copies_commit();
  }
  /// One group of copies each, also past the end: of the tile after `now`, keys before values.
  __device__ void fetch_keys(int now) {
    next_ = keys(now + Shape::kWarps, ahead_);
    if (now + Shape::kWarps < end) {
      fetch(next_, now + Shape::kWarps, keys_at, true);
      look_ahead(now + Shape::kWarps);
    }
    copies_commit();
  }
  __device__ void fetch_values(int now) const {
    if (now + Shape::kWarps < end)
      fetch(next_ + p_.value_offset, now + Shape::kWarps, values_at, true);
    copies_commit();
  }

 private:
  static constexpr int kTilesPerChunk = kChunkTokens / kDecodeTileTokens;
  static constexpr int kOwnLanes = 16;  ///< For the key, and as many for the value.

  __device__ const E* keys(int number, int chunk) const {
    return head_ + chunk * p_.chunk_stride + number % kTilesPerChunk * kDecodeTileTokens * kDim;
  }
  /// The chunk of the tile after `now`: to be there when it is asked for.
  __device__ void look_ahead(int now) {
    ahead_ = __ldcg(table_ + min(now + Shape::kWarps, end - 1) / kTilesPerChunk);
  }
  /// Half a tile. Tokens past the row's own become zeros; the own may be left out.
  __device__ void fetch(const E* from, int number, std::uint32_t to, bool with_own) const {
    constexpr int kRowPieces = Shape::kPitch / 8, kRows = 32 / kRowPieces;  // of one instruction
    const int lane = threadIdx.x % 32, row = lane / kRowPieces, piece = lane % kRowPieces;
    if (piece >= Shape::kPieces) return;
    from += row * kDim + piece * 8;
    to += 2 * Shape::place(row, piece);
    hold(from);
    hold(to);
    const int own = length - 1 - number * kDecodeTileTokens;
#pragma unroll
    for (int i = 0; i < kDecodeTileTokens; i += kRows)
      if (i + row != own || with_own)
        copy16_async(below(to, i), from + i * kDim, i + row <= own, policy_);
  }
  /// `rows` rows below a piece at `at`, whose row has none of their bits.
  __device__ static std::uint32_t below(std::uint32_t at, int rows) {
    return (at ^ Shape::swizzle(rows) * 16u) + rows * (2u * Shape::kPitch);
  }

  const DecodeParams<E>& p_;
  const std::int32_t* const table_;
  const E* const head_;
  const L2Policy policy_;
  const E* next_ = nullptr;  ///< Keys of the tile fetched last.
  int ahead_ = 0;
  const E* own_ = nullptr;
  std::uint32_t own_at_ = 0;
};

/// Adds all tiles of the source, whose first is under way, for the queries in `tile`.
template <typename E, int kDim, int kSets>
__device__ void run_tiles(TileSource<E, kDim, kSets>& source, int window, const ScoreScale& score,
                          DecodeTile<E, kDim, kSets>& tile) {
  const KeyRange range{window > 0 ? max(0, source.length - window) : 0, source.length};
  copies_wait<0>();
  for (int now = source.tile; now < source.end; now += DecodeShape<kDim, kSets>::kWarps) {
    copies_wait<1>();  // this tile's keys; its values may be under way
    __syncwarp();
    tile.score(source.keys_at);
    __syncwarp();
    source.fetch_keys(now);
    tile.weigh(now * kDecodeTileTokens, range, score);
    copies_wait<1>();  // its values
    __syncwarp();
    tile.add(source.values_at);
    __syncwarp();
    source.fetch_values(now);
  }
  tile.finish();
}

}  // namespace tandem::kernels
