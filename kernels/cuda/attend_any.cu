// SPDX-License-Identifier: Apache-2.0
// Attention for every type and head dim, one row and query head per block: the fallback, and the
// float path. Plain float arithmetic; the warps take the keys in turns and are merged at the end.
#include "kernels/cuda/attend_kernels.h"
#include "kernels/cuda/numeric.cuh"

namespace tandem::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kMaxPerLane = 16;  // head dims up to 512

template <typename E>
struct AnyParams {
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
  float scale, softcap;
  int table_stride, head_dim, window, first_row;
};

template <typename E>
__global__ void __launch_bounds__(kWarps * 32) attend_any_kernel(AnyParams<E> p) {
  __shared__ float merged[kWarps][kMaxPerLane * 32];
  __shared__ float stats[kWarps][2];
  pdl_wait();
  pdl_trigger();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, head = blockIdx.y;
  const std::int64_t row = p.first_row + blockIdx.x;
  const int dim = p.head_dim, position = p.positions[row];
  E* out = p.out + row * p.out_stride + std::int64_t{head} * dim;
  if (position < 0) {
    for (int d = threadIdx.x; d < dim; d += kWarps * 32) out[d] = from_float<E>(0.0f);
    return;
  }
  const std::int32_t* table = p.chunk_table + std::int64_t{p.slots[row]} * p.table_stride;
  const E* q_row = p.q + row * p.q_stride + std::int64_t{head} * dim;
  const E* base = p.kv_base + std::int64_t{p.kv_head_of_q[head]} * kChunkTokens * dim;
  float q[kMaxPerLane], acc[kMaxPerLane];
#pragma unroll
  for (int j = 0; j < kMaxPerLane; ++j) {
    const int d = lane + 32 * j;
    q[j] = d < dim ? to_float(q_row[d]) * p.scale : 0.0f;
    acc[j] = 0;
  }
  float maximum = -INFINITY, total = 0;
  const int first = p.window > 0 ? max(0, position + 1 - p.window) : 0;
  for (int key = first + warp; key <= position; key += kWarps) {
    const E* k_row = base + table[key / kChunkTokens] * p.chunk_stride + key % kChunkTokens * dim;
    float score = 0;
#pragma unroll
    for (int j = 0; j < kMaxPerLane; ++j) {
      const int d = lane + 32 * j;
      if (d < dim) score += q[j] * to_float(k_row[d]);
    }
    score = warp_sum(score);
    if (p.softcap > 0.0f) score = p.softcap * tanhf(score / p.softcap);
    const float next = fmaxf(maximum, score);
    const float rescale = expf(maximum - next), weight = expf(score - next);
    maximum = next;
    total = total * rescale + weight;
#pragma unroll
    for (int j = 0; j < kMaxPerLane; ++j) {
      const int d = lane + 32 * j;
      if (d < dim) acc[j] = acc[j] * rescale + weight * to_float(k_row[p.value_offset + d]);
    }
  }
#pragma unroll
  for (int j = 0; j < kMaxPerLane; ++j) merged[warp][lane + 32 * j] = acc[j];
  if (lane == 0) {
    stats[warp][0] = maximum;
    stats[warp][1] = total;
  }
  __syncthreads();
  float top = -INFINITY, sum = 0;
  for (int w = 0; w < kWarps; ++w) top = fmaxf(top, stats[w][0]);
  for (int w = 0; w < kWarps; ++w) sum += stats[w][1] * expf(stats[w][0] - top);
  for (int d = threadIdx.x; d < dim; d += kWarps * 32) {
    float value = 0;
    for (int w = 0; w < kWarps; ++w) value += merged[w][d] * expf(stats[w][0] - top);
    out[d] = from_float<E>(value / sum);
  }
}

}  // namespace

template <typename T>
void attend_any(Context<Cuda>& ctx, const AttendArgs<T, Cuda>& args, std::int32_t first_row,
                std::int32_t num_rows) {
  using E = cuda_t<T>;
  TANDEM_ASSERT(args.kv.head_dim <= kMaxPerLane * 32, "head size ", args.kv.head_dim);
  AnyParams<E> p{};
  p.positions = args.step->positions;
  p.slots = args.step->slots;
  p.chunk_table = args.kv.chunk_table;
  p.kv_head_of_q = args.kv_head_of_q;
  p.q = to_cuda(args.q.data);
  p.q_stride = args.q.stride;
  p.kv_base = to_cuda(args.kv.base) + args.layer * args.kv.layer_stride;
  p.chunk_stride = args.kv.chunk_stride;
  p.value_offset = args.kv.num_kv_heads * args.kv.head_stride();
  p.out = to_cuda(args.out.data);
  p.out_stride = args.out.stride;
  p.scale = args.scale;
  p.softcap = args.softcap;
  p.table_stride = args.kv.table_stride;
  p.head_dim = args.kv.head_dim;
  p.window = args.window;
  p.first_row = first_row;
  launch(ctx, dependent(dim3(num_rows, args.num_q_heads), dim3(kWarps * 32)), attend_any_kernel<E>,
         p);
}

template void attend_any<float>(Context<Cuda>&, const AttendArgs<float, Cuda>&, std::int32_t,
                                std::int32_t);
template void attend_any<BFloat16>(Context<Cuda>&, const AttendArgs<BFloat16, Cuda>&, std::int32_t,
                                   std::int32_t);
template void attend_any<Float16>(Context<Cuda>&, const AttendArgs<Float16, Cuda>&, std::int32_t,
                                  std::int32_t);

}  // namespace tandem::kernels
