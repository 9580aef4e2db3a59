// SPDX-License-Identifier: Apache-2.0
// Prefill attention with mma.sync (FlashAttention-2, Dao 2023, arXiv 2307.08691): 64 queries of one
// head per block, 16 per warp; chunks of 64 keys double-buffered with cp.async. Works for every
// window, softcap and chunked prefill: a query sees the keys up to its own position.
#include "kernels/cuda/attend_kernels.h"
#include "kernels/cuda/attend_tile.cuh"

namespace tandem::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kQueries = 16 * kWarps;

template <typename E>
struct PrefillParams {
  const std::int32_t* positions;
  const std::int32_t* slots;
  const std::int32_t* segment_begin;
  const std::int32_t* chunk_table;
  const std::int32_t* kv_head_of_q;
  const E* q;
  std::int64_t q_stride;
  const E* kv_base;  // of the layer
  std::int64_t chunk_stride, value_offset;
  E* out;
  std::int64_t out_stride;
  ScoreScale score;
  int table_stride, window;
};

/// The block's asynchronous copy of one chunk of K and V; keys at or past `length` become zeros.
template <typename E, int kDim>
__device__ void fetch_chunk(const E* keys, std::int64_t value_offset, int first, int length,
                            E* to) {
  constexpr int kPieces = kDim / 8;
  constexpr int kPitch = AttendTile<E, kDim, kChunkTokens>::kPitch;
  for (int i = threadIdx.x; i < kChunkTokens * kPieces; i += kWarps * 32) {
    const int token = i / kPieces, piece = i % kPieces;
    const bool take = first + token < length;
    const E* from = keys + token * kDim + piece * 8;
    E* shared = to + token * kPitch + piece * 8;
    copy16_async(shared, from, take);
    copy16_async(shared + kChunkTokens * kPitch, from + value_offset, take);
  }
}

template <typename E, int kDim>
constexpr int kStageElements = 2 * kChunkTokens* AttendTile<E, kDim, kChunkTokens>::kPitch;

/// Grid (query tiles, q heads, segments); the longest tiles start first.
template <typename E, int kDim>
__global__ void __launch_bounds__(kWarps * 32) attend_prefill_kernel(PrefillParams<E> p) {
  using Tile = AttendTile<E, kDim, kChunkTokens>;
  extern __shared__ __align__(16) unsigned char shared[];
  E* ring = reinterpret_cast<E*>(shared);
  pdl_wait();
  pdl_trigger();
  const int begin = p.segment_begin[blockIdx.z], end = p.segment_begin[blockIdx.z + 1];
  const int tile_begin = begin + static_cast<int>(gridDim.x - 1 - blockIdx.x) * kQueries;
  if (tile_begin >= end) return;
  const int head = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int rows[2] = {tile_begin + warp * 16 + lane / 4, tile_begin + warp * 16 + lane / 4 + 8};
  const int first_position = p.positions[begin];  // consecutive from here
  const bool inert = first_position < 0;

  KeyRange range[2];
  const E* queries[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool live = rows[r] < end && !inert;
    const int position = first_position + rows[r] - begin;
    range[r].end = live ? position + 1 : 0;
    range[r].begin = p.window > 0 ? max(0, position + 1 - p.window) : 0;
    queries[r] = live ? p.q + rows[r] * p.q_stride + std::int64_t{head} * kDim : nullptr;
  }
  Tile tile;
  tile.start(queries[0], queries[1]);

  const int tile_first = first_position + tile_begin - begin;
  const int length = inert ? 0 : first_position + min(tile_begin + kQueries, end) - begin;
  const int chunk_begin = p.window > 0 ? max(0, tile_first + 1 - p.window) / kChunkTokens : 0;
  const int chunk_end = (length + kChunkTokens - 1) / kChunkTokens;
  const std::int32_t* table = p.chunk_table + std::int64_t{p.slots[begin]} * p.table_stride;
  const E* head_base = p.kv_base + std::int64_t{p.kv_head_of_q[head]} * kChunkTokens * kDim;
  const auto fetch = [&](int chunk) {
    if (chunk < chunk_end)
      fetch_chunk<E, kDim>(head_base + table[chunk] * p.chunk_stride, p.value_offset,
                           chunk * kChunkTokens, length,
                           ring + chunk % 2 * kStageElements<E, kDim>);
    copies_commit();
  };
  fetch(chunk_begin);
  for (int chunk = chunk_begin; chunk < chunk_end; ++chunk) {
    fetch(chunk + 1);
    copies_wait<1>();
    __syncthreads();
    const E* stage = ring + chunk % 2 * kStageElements<E, kDim>;
    tile.add(stage, stage + kChunkTokens * Tile::kPitch, chunk * kChunkTokens, range, p.score);
    __syncthreads();
  }
  copies_wait<0>();
  tile.finish();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (rows[r] >= end) continue;
    const float inverse = tile.sum[r] > 0 ? 1.0f / tile.sum[r] : 0.0f;
    E* out = p.out + rows[r] * p.out_stride + std::int64_t{head} * kDim + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n)
      *reinterpret_cast<std::uint32_t*>(out + n * 8) =
          pack2<E>(tile.out[n][2 * r] * inverse, tile.out[n][2 * r + 1] * inverse);
  }
}

template <typename T, int kDim>
void launch_prefill(Context<Cuda>& ctx, const AttendArgs<T, Cuda>& args) {
  using E = cuda_t<T>;
  const StepView<Cuda>& step = *args.step;
  PrefillParams<E> p{};
  p.positions = step.positions;
  p.slots = step.slots;
  p.segment_begin = step.segment_begin;
  p.chunk_table = args.kv.chunk_table;
  p.kv_head_of_q = args.kv_head_of_q;
  p.q = to_cuda(args.q.data);
  p.q_stride = args.q.stride;
  p.kv_base = to_cuda(args.kv.base) + args.layer * args.kv.layer_stride;
  p.chunk_stride = args.kv.chunk_stride;
  p.value_offset = args.kv.num_kv_heads * args.kv.head_stride();
  p.out = to_cuda(args.out.data);
  p.out_stride = args.out.stride;
  p.score = {args.scale, args.softcap};
  p.table_stride = args.kv.table_stride;
  p.window = args.window;
  const dim3 grid((step.max_segment_tokens + kQueries - 1) / kQueries, args.num_q_heads,
                  step.num_segments);
  constexpr int kSharedBytes = 2 * kStageElements<E, kDim> * static_cast<int>(sizeof(E));
  launch(ctx, dependent(grid, dim3(kWarps * 32), kSharedBytes), attend_prefill_kernel<E, kDim>, p);
}

}  // namespace

template <typename T>
bool attend_prefill_mma(Context<Cuda>& ctx, const AttendArgs<T, Cuda>& args) {
  if (args.q.stride % 8 != 0 || args.out.stride % 2 != 0) return false;
  switch (args.kv.head_dim) {
    case 64:
      launch_prefill<T, 64>(ctx, args);
      return true;
    case 80:
      launch_prefill<T, 80>(ctx, args);
      return true;
    case 96:
      launch_prefill<T, 96>(ctx, args);
      return true;
    case 128:
      launch_prefill<T, 128>(ctx, args);
      return true;
    case 256:
      launch_prefill<T, 256>(ctx, args);
      return true;
    default:
      return false;
  }
}

template bool attend_prefill_mma<BFloat16>(Context<Cuda>&, const AttendArgs<BFloat16, Cuda>&);
template bool attend_prefill_mma<Float16>(Context<Cuda>&, const AttendArgs<Float16, Cuda>&);

}  // namespace tandem::kernels
