// SPDX-License-Identifier: Apache-2.0
// Decode attention: split-KV in one launch (Flash-Decoding, Dao et al. 2023), the query heads of a
// KV head packed into the 16 rows of mma. The last block of a (row, KV head) combines the splits.
//
// Before the PDL wait a block reads the step's row arrays and chunk table and fetches its first
// tiles: both are complete, because `embed` starts only after everything before it has ended, and
// keys and values before the row's own token come from earlier steps. Only the row's own token, the
// queries and all writes come after the wait.
#include <algorithm>

#include "kernels/cuda/attend_decode_source.cuh"
#include "kernels/cuda/attend_kernels.h"

namespace tandem::kernels {
namespace {

/// The warps' sums and their maxima and weights to shared memory: `merged` [warps][16][kDim],
/// `stats` [warps][16][2].
template <typename E, int kDim>
__device__ void publish(const typename DecodeShared<E, kDim>::Tile& tile, float* merged,
                        float (*stats)[kDecodeGroupRows][2]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  __syncthreads();  // all warps are done with the ring
  float* mine = merged + warp * kDecodeGroupRows * kDim;
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
  for (int h = threadIdx.x / 32; h < num_heads; h += kDecodeWarps) {
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
__global__ void __launch_bounds__(kDecodeWarps * 32) attend_decode_kernel(DecodeParams<E> p) {
  using Tile = typename DecodeShared<E, kDim>::Tile;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ float stats[kDecodeWarps][kDecodeGroupRows][2];
  __shared__ std::int16_t heads[kDecodeMaxQHeads];
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
      for (int i = threadIdx.x; i < num_heads * kDim; i += kDecodeWarps * 32)
        p.out[row * p.out_stride + heads[i / kDim] * kDim + i % kDim] = from_float<E>(0.0f);
    return;
  }

  E* ring =
      reinterpret_cast<E*>(shared) + warp * kDecodeStages * DecodeShared<E, kDim>::kStageElements;
  float* merged = reinterpret_cast<float*>(shared);
  const TileSource<E, kDim> source(p, share, slot, kv_head, length, ring);
  source.fetch_early();
  pdl_wait();
  bool drain = source.complete_early();
  for (int base = 0; base < num_heads; base += kDecodeGroupRows) {
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
    const int rows = min(kDecodeGroupRows, num_heads - base);
    for (int i = threadIdx.x; i < rows * kDim; i += kDecodeWarps * 32) {
      const int r = i / kDim, d = i % kDim, head = heads[base + r];
      float maximum = -INFINITY, value = 0, total = 0;
#pragma unroll
      for (int w = 0; w < kDecodeWarps; ++w) maximum = fmaxf(maximum, stats[w][r][0]);
#pragma unroll
      for (int w = 0; w < kDecodeWarps; ++w) {
        const float weight = exp2f(stats[w][r][0] - maximum);
        value += weight * merged[(w * kDecodeGroupRows + r) * kDim + d];
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

/// Most splits of one row: enough blocks to fill the GPU twice, at least 4 of a row that may be
/// long, so that it is shared out among short ones, and never more than the scratch holds.
int split_count(Context<Cuda>& ctx, std::int64_t rows, int kv_heads, int q_heads, int head_dim,
                int max_kv_tokens) {
  constexpr std::int64_t kCrowded = 1024, kLong = 2048;
  const std::int64_t pairs = rows * kv_heads, slots = 2 * ctx.num_sms();
  if (pairs > kCrowded || pairs > ctx.counters().size) return 1;
  const std::int64_t fitting = ctx.partials().size / (rows * q_heads * (head_dim + 2));
  constexpr std::int64_t kMinTokens = kDecodeMinChunks * kChunkTokens;
  const std::int64_t most = (max_kv_tokens + kMinTokens - 1) / kMinTokens;
  const std::int64_t wanted = std::max(slots / pairs, std::int64_t{max_kv_tokens > kLong ? 4 : 1});
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
         dependent(dim3(splits, kv_heads, step.num_decode), dim3(kDecodeWarps * 32),
                   DecodeShared<E, kDim>::kBytes),
         attend_decode_kernel<E, kDim>, p);
}

}  // namespace

template <typename T>
bool attend_decode_rows(Context<Cuda>& ctx, const AttendArgs<T, Cuda>& args) {
  if (args.num_q_heads > kDecodeMaxQHeads || args.q.stride % 8 != 0 || args.out.stride % 2 != 0)
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
