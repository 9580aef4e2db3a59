// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/sample_key.cuh"

namespace tandem::kernels {
namespace {

constexpr int kThreads = 512;
constexpr int kLoads = 4;  // of 16 bytes, of a thread, under way together

/// Grid (parts of the shard, samples): kLoads * kThreads vectors of N logits each.
template <int N>
__global__ void __launch_bounds__(kThreads)
    best_of_shard_kernel(const ShardArgs<Cuda> args, int columns, TokenKey* best) {
  __shared__ TokenKey scratch[32];
  pdl_trigger();
  const int sample = blockIdx.y;
  // Rows and slots of a step are complete before its first layer starts.
  const RowSampling row = row_sampling(args, sample);
  const auto vocab_begin = static_cast<std::int32_t>(args.vocab_begin);
  const float* logits = args.logits.data + sample * args.logits.stride;
  const int first = (blockIdx.x * kLoads * kThreads + threadIdx.x) * N;
  pdl_wait();
  Vec<float, N> values[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const int at = first + i * kThreads * N;
#pragma unroll
    for (int j = 0; j < N; ++j) values[i].at[j] = -INFINITY;
    if (at + N <= columns) values[i] = load_vec<float, N>(logits + at);
  }
  BestSearch search;
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const int at = first + i * kThreads * N;
    if (at + N <= columns) {
#pragma unroll
      for (int j = 0; j < N; ++j) search.look(values[i].at[j], vocab_begin + at + j, row);
    } else {
      for (int j = at; j < columns; ++j) search.look(logits[j], vocab_begin + j, row);
    }
  }
  const TokenKey winner = block_best(search.key(), scratch);
  if (threadIdx.x == 0) atomicMax(best + sample, winner);
}

__global__ void join_shards_kernel(JoinShardsArgs<Cuda> args) {
  pdl_wait();
  pdl_trigger();
  const int sample = blockIdx.y, rank = blockIdx.z;
  const std::int32_t begin = args.vocab_begin[rank], count = args.vocab_begin[rank + 1] - begin;
  const float* shard =
      args.gathered + (std::int64_t{rank} * args.num_samples + sample) * args.width;
  float* out = args.out.data + sample * args.out.stride + begin;
  for (int j = blockIdx.x * blockDim.x + threadIdx.x; j < count; j += gridDim.x * blockDim.x)
    out[j] = shard[j];
}

}  // namespace

void best_of_shard(Context<Cuda>& ctx, const ShardArgs<Cuda>& args, TokenKey* best) {
  const int samples = args.samples.num_samples;
  if (samples == 0) return;
  const auto columns = static_cast<int>(
      std::min<std::int64_t>(args.logits.cols, args.vocab_size - args.vocab_begin));
  const bool wide = args.logits.stride % 4 == 0 && aligned_to(args.logits.data, 16);
  const int of_block = kLoads * kThreads * (wide ? 4 : 1);
  const int parts = std::max(1, (columns + of_block - 1) / of_block);
  launch(ctx, dependent(dim3(parts, samples), dim3(kThreads)),
         wide ? best_of_shard_kernel<4> : best_of_shard_kernel<1>, args, columns, best);
}

void join_shards(Context<Cuda>& ctx, const JoinShardsArgs<Cuda>& args) {
  if (args.num_samples == 0) return;
  const auto parts = static_cast<unsigned>((args.width + kThreads * 8 - 1) / (kThreads * 8));
  launch(ctx, dependent(dim3(parts, args.num_samples, args.ranks), dim3(kThreads)),
         join_shards_kernel, args);
}

}  // namespace tandem::kernels
