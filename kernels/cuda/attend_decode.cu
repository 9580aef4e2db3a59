// SPDX-License-Identifier: Apache-2.0
// Decode attention: split-KV in one launch (Flash-Decoding, Dao et al. 2023), the query heads of a
// KV head packed into the 16 rows of mma. The last block of a (row, KV head) combines the splits.
//
// Before the PDL wait a block reads the step's row arrays and chunk table and fetches its first
// tiles: both are complete, because `embed` starts only after everything before it has ended, and
// keys and values before the row's own token come from earlier steps. Only the row's own token, the
// queries and all writes come after the wait.
#include <algorithm>

#include "kernels/cuda/attend_kernels.h"
#include "kernels/cuda/attend_tile.cuh"

namespace tandem::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kTileTokens = 16;  // of one warp; a chunk is 4 tiles
constexpr int kStages = 3;
constexpr int kMaxQHeads = 256;
constexpr int kGroupRows = 16;
constexpr int kMinChunks = 4;  // of a split: fewer are not worth a combination

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
  using Tile = AttendTile<E, kDim, kTileTokens>;
  static constexpr int kStageElements = 2 * kTileTokens * Tile::kPitch;
  static constexpr int kRingBytes = kWarps * kStages * kStageElements * sizeof(E);
  static constexpr int kMergeBytes = kWarps * kGroupRows * kDim * sizeof(float);
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
  const int per_block = max(kMinChunks, (total + p.target_blocks - 1) / p.target_blocks);
  const int splits = min(static_cast<int>(gridDim.x), (chunks + per_block - 1) / per_block);
  const int split = blockIdx.x;
  if (splits == 0) return {0, 0, 0};
  return {splits, first_chunk + chunks * split / splits,
          first_chunk + chunks * (split + 1) / splits};
}

/// Numbers of the query heads that use `kv_head`; returns how many. By warp 0, then a barrier.
__device__ int list_heads(const std::int32_t* kv_head_of_q, int num_q_heads, int kv_head,
                          std::int16_t* heads, int* count) {
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
  for (int i = lane; i < kTileTokens * kPieces; i += 32) {
    const int token = i / kPieces, piece = i % kPieces;
    const bool take = first + token < length;
    const E* from = keys + token * kDim + piece * 8;
    E* shared = to + token * kPitch + piece * 8;
    copy16_async(shared, from, take);
    copy16_async(shared + kTileTokens * kPitch, from + value_offset, take);
  }
}

/// One warp's tiles of the split: tile w, w + 4, ... counted from the split's first chunk.
template <typename E, int kDim>
struct TileSource {
  static constexpr int kStageElements = DecodeShared<E, kDim>::kStageElements;
  static constexpr int kTilesPerChunk = kChunkTokens / kTileTokens;
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
        tiles((min(row_length, share.end * kChunkTokens) - key_begin + kTileTokens - 1) /
              kTileTokens),
        warp(static_cast<int>(threadIdx.x) / 32),
        length(row_length) {}
  __device__ int count() const { return (tiles - warp + kWarps - 1) / kWarps; }
  __device__ int first_key(int i) const { return key_begin + (warp + i * kWarps) * kTileTokens; }
  __device__ E* stage(int i) const { return ring + i % kStages * kStageElements; }
  __device__ const E* keys(int first) const {
    return head_base + __ldcg(table + first / kChunkTokens) * p.chunk_stride +
           first / kTileTokens % kTilesPerChunk * kTileTokens * kDim;
  }
  /// One group of copies, also past the end; tokens at or past `limit` become zeros.
  __device__ void fetch(int i, int limit) const {
    if (i < count())
      fetch_tile<E, kDim>(keys(first_key(i)), p.value_offset, first_key(i), limit, stage(i));
    copies_commit();
  }
  /// The first tiles, without the row's own token.
  __device__ void fetch_early() const {
    for (int i = 0; i < kStages - 1; ++i) fetch(i, length - 1);
  }
  /// After the wait: the row's own token, if its tile was fetched early. Returns whether it was.
  __device__ bool complete_early() const {
    const int last = tiles - 1, i = (last - warp) / kWarps;
    if (last < warp || (last - warp) % kWarps != 0 || i >= kStages - 1 ||
        first_key(i) + kTileTokens < length)
      return false;
    copies_wait<0>();  // the zeros of this token must not land after its values
    __syncwarp();
    constexpr int kPieces = kDim / 8, kPitch = DecodeShared<E, kDim>::Tile::kPitch;
    const int token = length - 1 - first_key(i), lane = threadIdx.x % 32;
    const E* from = keys(first_key(i)) + token * kDim;
    for (int piece = lane; piece < 2 * kPieces; piece += 32) {
      const int is_value = piece / kPieces, at = piece % kPieces * 8;
      copy16_async(stage(i) + (is_value * kTileTokens + token) * kPitch + at,
                   from + is_value * p.value_offset + at, true);
    }
    copies_commit();
    return true;
  }
};

/// Adds all tiles of the source, whose first kStages - 1 are under way; `drain`: there are more
/// groups of copies than tiles.
template <typename E, int kDim>
__device__ void run_tiles(const TileSource<E, kDim>& source, bool drain, int window,
                          const ScoreScale& score, typename DecodeShared<E, kDim>::Tile& tile) {
  const int length = source.length, first = window > 0 ? max(0, length - window) : 0;
  const KeyRange range[2] = {{first, length}, {first, length}};
  for (int i = 0; i < source.count(); ++i) {
    if (drain) copies_wait<0>();
    source.fetch(i + kStages - 1, length);
    if (!drain) copies_wait<kStages - 1>();
    __syncwarp();
    const E* stage = source.stage(i);
    tile.add(stage, stage + TileSource<E, kDim>::kStageElements / 2, source.first_key(i), range,
             score);
    __syncwarp();
  }
  copies_wait<0>();
  tile.finish();
}

/// Merges the warps' results. `merged` [warps][16][kDim] and `stats` [warps][16][2] are shared;
/// afterwards each thread reads rows with `merged_value`.
template <typename E, int kDim>
__device__ void publish(const typename DecodeShared<E, kDim>::Tile& tile, float* merged,
                        float (*stats)[kGroupRows][2]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  __syncthreads();  // all warps are done with the ring
  float* mine = merged + warp * kGroupRows * kDim;
#pragma unroll
  for (int n = 0; n < kDim / 8; ++n)
#pragma unroll
    for (int r = 0; r < 4; ++r)
      mine[(g + r / 2 * 8) * kDim + n * 8 + t * 2 + r % 2] = tile.out[n][r];
  if (t == 0)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      stats[warp][g + r * 8][0] = tile.max[r];
      stats[warp][g + r * 8][1] = tile.sum[r];
    }
  __syncthreads();
}

/// The last block of the row and KV head sums the splits of its query heads, a warp per head.
template <typename E, int kDim>
__device__ void combine(const DecodeParams<E>& p, int row, int splits, const std::int16_t* heads,
                        int num_heads) {
  const int lane = threadIdx.x % 32;
  for (int h = threadIdx.x / 32; h < num_heads; h += kWarps) {
    const std::int64_t index = (std::int64_t{row} * p.num_q_heads + heads[h]) * gridDim.x;
    const float* stats = p.partial_stats + index * 2;
    float maximum = -INFINITY;
    for (int s = lane; s < splits; s += 32) maximum = fmaxf(maximum, __ldcg(stats + s * 2));
    maximum = warp_max(maximum);
    float total = 0;
    for (int s = lane; s < splits; s += 32)
      total += __ldcg(stats + s * 2 + 1) * exp2f(__ldcg(stats + s * 2) - maximum);
    const float inverse = 1.0f / warp_sum(total);
    for (int d = lane * 2; d < kDim; d += 64) {
      float2 sum = {0, 0};
#pragma unroll 4
      for (int s = 0; s < splits; ++s) {
        const float weight = exp2f(__ldcg(stats + s * 2) - maximum);
        const float2 part =
            __ldcg(reinterpret_cast<const float2*>(p.partial + (index + s) * kDim + d));
        sum.x += weight * part.x;
        sum.y += weight * part.y;
      }
      *reinterpret_cast<std::uint32_t*>(p.out + row * p.out_stride + heads[h] * kDim + d) =
          pack2<E>(sum.x * inverse, sum.y * inverse);
    }
  }
}

/// Grid (splits, kv heads, rows). Blocks beyond a row's splits end at once.
template <typename E, int kDim>
__global__ void __launch_bounds__(kWarps * 32) attend_decode_kernel(DecodeParams<E> p) {
  using Tile = typename DecodeShared<E, kDim>::Tile;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ float stats[kWarps][kGroupRows][2];
  __shared__ std::int16_t heads[kMaxQHeads];
  __shared__ int shared_int;
  const int row = blockIdx.z, kv_head = blockIdx.y, split = blockIdx.x;
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
  const int num_heads = list_heads(p.kv_head_of_q, p.num_q_heads, kv_head, heads, &shared_int);
  pdl_trigger();
  const int length = __ldcg(p.positions + row) + 1, slot = __ldcg(p.slots + row);
  const int first_chunk = (p.window > 0 ? max(0, length - p.window) : 0) / kChunkTokens;
  const int chunks = length <= 0 ? 0 : (length - 1) / kChunkTokens - first_chunk + 1;
  const Share share = share_of(p, first_chunk, chunks);
  if (length <= 0 || split >= share.splits) {
    pdl_wait();
    if (length <= 0 && split == 0)
      for (int i = threadIdx.x; i < num_heads * kDim; i += kWarps * 32)
        p.out[row * p.out_stride + heads[i / kDim] * kDim + i % kDim] = from_float<E>(0.0f);
    return;
  }

  E* ring = reinterpret_cast<E*>(shared) + warp * kStages * DecodeShared<E, kDim>::kStageElements;
  float* merged = reinterpret_cast<float*>(shared);
  const TileSource<E, kDim> source(p, share, slot, kv_head, length, ring);
  source.fetch_early();
  pdl_wait();
  bool drain = source.complete_early();
  for (int base = 0; base < num_heads; base += kGroupRows) {
    if (base > 0) {
      source.fetch_early();
      drain = source.complete_early();
    }
    const auto query = [&](int r) -> const E* {
      return base + r < num_heads ? p.q + row * p.q_stride + heads[base + r] * kDim : nullptr;
    };
    Tile tile;
    tile.start(query(g), query(g + 8));
    run_tiles<E, kDim>(source, drain, p.window, p.score, tile);
    publish<E, kDim>(tile, merged, stats);
    const int rows = min(kGroupRows, num_heads - base);
    for (int i = threadIdx.x; i < rows * kDim; i += kWarps * 32) {
      const int r = i / kDim, d = i % kDim, head = heads[base + r];
      float maximum = -INFINITY, value = 0, total = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) maximum = fmaxf(maximum, stats[w][r][0]);
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const float weight = exp2f(stats[w][r][0] - maximum);
        value += weight * merged[(w * kGroupRows + r) * kDim + d];
        total += weight * stats[w][r][1];
      }
      if (share.splits == 1) {
        p.out[row * p.out_stride + head * kDim + d] = from_float<E>(value / total);
        continue;
      }
      const std::int64_t index = (std::int64_t{row} * p.num_q_heads + head) * gridDim.x + split;
      p.partial[index * kDim + d] = value;
      if (d == 0) {
        p.partial_stats[index * 2] = maximum;
        p.partial_stats[index * 2 + 1] = total;
      }
    }
    __syncthreads();
  }
  if (share.splits == 1) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0)
    shared_int = atomicAdd(p.counters + row * gridDim.y + kv_head, 1) == share.splits - 1;
  __syncthreads();
  if (shared_int == 0) return;
  __threadfence();
  combine<E, kDim>(p, row, share.splits, heads, num_heads);
  if (threadIdx.x == 0) p.counters[row * gridDim.y + kv_head] = 0;
}

/// Most splits of one row: enough blocks to fill the GPU twice, at least 4 so that a long row
/// among short ones is shared out, and never more than the scratch holds.
int split_count(Context<Cuda>& ctx, std::int64_t rows, int kv_heads, int q_heads, int head_dim,
                int max_kv_tokens) {
  constexpr std::int64_t kCrowded = 1024, kFewSplits = 4;
  const std::int64_t pairs = rows * kv_heads, slots = 2 * ctx.num_sms();
  if (pairs > kCrowded || pairs > ctx.counters().size) return 1;
  const std::int64_t fitting = ctx.partials().size / (rows * q_heads * (head_dim + 2));
  constexpr std::int64_t kMinTokens = kMinChunks * kChunkTokens;
  const std::int64_t most = (max_kv_tokens + kMinTokens - 1) / kMinTokens;
  const std::int64_t wanted = std::max((slots + pairs - 1) / pairs, kFewSplits);
  return static_cast<int>(std::max<std::int64_t>(1, std::min({wanted, most, fitting})));
}

template <typename T, int kDim>
void launch_decode(Context<Cuda>& ctx, const AttendArgs<T, Cuda>& args) {
  using E = cuda_t<T>;
  const StepView<Cuda>& step = *args.step;
  const int kv_heads = args.kv.num_kv_heads;
  const int splits =
      split_count(ctx, step.num_decode, kv_heads, args.num_q_heads, kDim, step.max_kv_tokens);
  DecodeParams<E> p{};
  p.positions = step.positions;
  p.slots = step.slots;
  p.chunk_table = args.kv.chunk_table;
  p.kv_head_of_q = args.kv_head_of_q;
  p.q = to_cuda(args.q.data);
  p.q_stride = args.q.stride;
  p.kv_base = to_cuda(args.kv.base) + args.layer * args.kv.layer_stride;
  p.chunk_stride = args.kv.chunk_stride;
  p.value_offset = args.kv.num_kv_heads * args.kv.head_stride();
  p.out = to_cuda(args.out.data);
  p.out_stride = args.out.stride;
  p.partial = ctx.partials().data;
  p.partial_stats = p.partial + std::int64_t{step.num_decode} * args.num_q_heads * splits * kDim;
  p.counters = ctx.counters().data;
  p.score = {args.scale, args.softcap};
  p.table_stride = args.kv.table_stride;
  p.num_q_heads = args.num_q_heads;
  p.num_rows = step.num_decode;
  p.window = args.window;
  p.target_blocks = 2 * ctx.num_sms();
  launch(ctx,
         dependent(dim3(splits, kv_heads, step.num_decode), dim3(kWarps * 32),
                   DecodeShared<E, kDim>::kBytes),
         attend_decode_kernel<E, kDim>, p);
}

}  // namespace

template <typename T>
bool attend_decode_rows(Context<Cuda>& ctx, const AttendArgs<T, Cuda>& args) {
  if (args.num_q_heads > kMaxQHeads || args.q.stride % 8 != 0 || args.out.stride % 2 != 0)
    return false;
  switch (args.kv.head_dim) {
    case 64:
      launch_decode<T, 64>(ctx, args);
      return true;
    case 80:
      launch_decode<T, 80>(ctx, args);
      return true;
    case 96:
      launch_decode<T, 96>(ctx, args);
      return true;
    case 128:
      launch_decode<T, 128>(ctx, args);
      return true;
    case 256:
      launch_decode<T, 256>(ctx, args);
      return true;
    default:
      return false;
  }
}

template bool attend_decode_rows<BFloat16>(Context<Cuda>&, const AttendArgs<BFloat16, Cuda>&);
template bool attend_decode_rows<Float16>(Context<Cuda>&, const AttendArgs<Float16, Cuda>&);

}  // namespace tandem::kernels
