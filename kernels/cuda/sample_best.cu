// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/sample_key.cuh"

namespace tandem::kernels {
namespace {

constexpr int kThreads = 512;
constexpr int kBlocksPerRow = 32;

/// Grid (parts of the shard, samples). The last block of a row reduces the parts.
__global__ void __launch_bounds__(kThreads)
    best_of_shard_kernel(ShardArgs<Cuda> args, int columns, TokenKey* parts, int* counters,
                         Candidate* best) {
  __shared__ TokenKey scratch[32];
  __shared__ bool is_last;
  pdl_wait();
  pdl_trigger();
  const int sample = blockIdx.y;
  const SlotParams& params = args.slots.params[args.samples.slots[sample]];
  const float temperature = params.temperature;
  const std::uint64_t seed = params.seed;
  const std::int32_t position = args.positions[args.samples.rows[sample]] + 1;
  const auto vocab_begin = static_cast<std::int32_t>(args.vocab_begin);
  const float* logits = args.logits.data + sample * args.logits.stride;
  TokenKey winner = no_token();
  float winner_value = -INFINITY;
  for (int j = blockIdx.x * kThreads + threadIdx.x; j < columns; j += gridDim.x * kThreads) {
    float value = logits[j];
    if (temperature > 0.0f) {
      value /= temperature;
      if (value + kMaxGumbel < winner_value) continue;  // no noise can lift it
      value += gumbel(token_word(seed, position, vocab_begin + j));
    }
    if (!(value >= winner_value)) continue;  // NaN never wins
    const TokenKey key = token_key(value, vocab_begin + j);
    if (key > winner) {
      winner = key;
      winner_value = value;
    }
  }
  winner = block_best(winner, scratch);
  if (threadIdx.x == 0) {
    parts[sample * gridDim.x + blockIdx.x] = winner;
    __threadfence();
    is_last = atomicAdd(counters + sample, 1) == static_cast<int>(gridDim.x) - 1;
  }
  __syncthreads();
  if (!is_last || threadIdx.x >= 32) return;
  __threadfence();
  winner = threadIdx.x < gridDim.x ? __ldcg(parts + sample * gridDim.x + threadIdx.x) : no_token();
  winner = warp_best(winner);
  if (threadIdx.x == 0) {
    best[sample] = candidate_of(winner);
    counters[sample] = 0;
  }
}

__global__ void pick_best_kernel(const Candidate* best, int ranks, int num_samples,
                                 std::int32_t* tokens) {
  pdl_wait();
  pdl_trigger();
  const int sample = blockIdx.x * blockDim.x + threadIdx.x;
  if (sample >= num_samples) return;
  TokenKey winner = no_token();
  for (int rank = 0; rank < ranks; ++rank) {
    const Candidate candidate = best[rank * num_samples + sample];
    const TokenKey key = token_key(candidate.value, candidate.id);
    if (key > winner) winner = key;
  }
  tokens[sample] = candidate_of(winner).id;
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

void best_of_shard(Context<Cuda>& ctx, const ShardArgs<Cuda>& args, Candidate* best) {
  const int samples = args.samples.num_samples;
  if (samples == 0) return;
  const auto columns = static_cast<int>(
      std::min<std::int64_t>(args.logits.cols, args.vocab_size - args.vocab_begin));
  TANDEM_ASSERT(samples <= ctx.counters().size &&
                    std::int64_t{samples} * kBlocksPerRow * 2 <= ctx.partials().size,
                samples, " samples");
  const int wanted = std::max(1, (columns + kThreads * 8 - 1) / (kThreads * 8));
  launch(ctx, dependent(dim3(std::min(wanted, kBlocksPerRow), samples), dim3(kThreads)),
         best_of_shard_kernel, args, columns, reinterpret_cast<TokenKey*>(ctx.partials().data),
         ctx.counters().data, best);
}

void pick_best(Context<Cuda>& ctx, const Candidate* best, int ranks, int num_samples,
               std::int32_t* tokens) {
  constexpr int kPickThreads = 128;
  if (num_samples == 0) return;
  launch(ctx, dependent(dim3((num_samples + kPickThreads - 1) / kPickThreads), dim3(kPickThreads)),
         pick_best_kernel, best, ranks, num_samples, tokens);
}

void join_shards(Context<Cuda>& ctx, const JoinShardsArgs<Cuda>& args) {
  if (args.num_samples == 0) return;
  const auto parts = static_cast<unsigned>((args.width + kThreads * 8 - 1) / (kThreads * 8));
  launch(ctx, dependent(dim3(parts, args.num_samples, args.ranks), dim3(kThreads)),
         join_shards_kernel, args);
}

}  // namespace tandem::kernels
