// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sample_select.cuh"

namespace tandem::kernels {
namespace {

__device__ double block_sum_double(double x, SelectShared& s) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int mask = 16; mask > 0; mask >>= 1) x += __shfl_xor_sync(0xffffffffu, x, mask);
  if (lane == 0) s.scratch_double[warp] = x;
  __syncthreads();
  x = s.scratch_double[lane];
#pragma unroll
  for (int mask = 16; mask > 0; mask >>= 1) x += __shfl_xor_sync(0xffffffffu, x, mask);
  __syncthreads();
  return x;
}

/// Best key of the raw logits.
__device__ TokenKey largest(const float* logits, int size, SelectShared& s) {
  TokenKey best = no_token();
  for (int i = threadIdx.x; i < size; i += kSelectThreads) {
    const TokenKey key = token_key(logits[i], i);
    if (!isnan(logits[i]) && key > best) best = key;
  }
  return block_best(best, s.scratch);
}

__device__ void keep_top_k(SelectRow& row, int k, SelectShared& s) {
  if (k <= 0) return;
  fill_bins(row, CountWeight{}, s);
  if (s.total > static_cast<unsigned long long>(k))
    row.limit = reach(row, static_cast<unsigned long long>(k), CountWeight{}, s);
}

__device__ void keep_top_p(SelectRow& row, float top_p, SelectShared& s) {
  if (top_p >= 1.0f) return;
  const MassWeight weight{row.maximum};
  fill_bins(row, weight, s);
  const double target = ceil(static_cast<double>(top_p) * static_cast<double>(s.total));
  row.limit = reach(row, target < 1 ? 1ull : static_cast<unsigned long long>(target), weight, s);
}

/// Locally typical sampling (Meister et al. 2022, arXiv 2202.00666): how far a token's surprise may
/// be from the entropy. Found bit by bit: rarely used.
struct Typical {
  double log_sum = 0, entropy = 0;
  float limit = INFINITY;

  __device__ float distance(float v, float maximum) const {
    const double surprise = log_sum - (static_cast<double>(v) - maximum);
    return static_cast<float>(fabs(surprise - entropy));
  }
};
__device__ Typical keep_typical(const SelectRow& row, float typical_p, SelectShared& s) {
  Typical typical;
  if (typical_p >= 1.0f) return typical;
  double sum = 0, weighted = 0;
  for (int i = threadIdx.x; i < row.size; i += kSelectThreads) {
    const float v = row.value(i);
    if (!row.kept(v, i)) continue;
    const double below = static_cast<double>(v) - row.maximum, p = exp(below);
    sum += p;
    weighted += p * below;
  }
  sum = block_sum_double(sum, s);
  weighted = block_sum_double(weighted, s);
  typical.log_sum = log(sum);
  typical.entropy = typical.log_sum - weighted / sum;
  const double target = static_cast<double>(typical_p) * sum;
  std::uint32_t bits = 0x7f800000u;  // the smallest distance whose tokens reach the target
  for (int bit = 30; bit >= 0; --bit) {
    const std::uint32_t trial = bits - (1u << bit);
    if (trial > bits) continue;
    const float limit = __uint_as_float(trial);
    double mass = 0;
    for (int i = threadIdx.x; i < row.size; i += kSelectThreads) {
      const float v = row.value(i);
      if (row.kept(v, i) && typical.distance(v, row.maximum) <= limit)
        mass += exp(static_cast<double>(v) - row.maximum);
    }
    if (block_sum_double(mass, s) >= target) bits = trial;
  }
  typical.limit = __uint_as_float(bits);
  return typical;
}

__device__ std::int32_t sample_row(const float* logits, int size, const SlotParams& params,
                                   std::int32_t position, SelectShared& s) {
  const Candidate top = candidate_of(largest(logits, size, s));
  if (top.id >= size) return 0;  // nothing but NaN
  if (params.temperature <= 0.0f || top.value == -INFINITY) return top.id;
  SelectRow row{logits, size, params.temperature, top.value / params.temperature, -INFINITY,
                0,      false};
  if (params.min_p > 0.0f) row.floor = row.maximum + logf(params.min_p);
  keep_top_k(row, params.top_k, s);
  keep_top_p(row, params.top_p, s);
  const Typical typical = keep_typical(row, params.typical_p, s);
  TokenKey winner = 0;
  float winner_value = -INFINITY;
  for (int i = threadIdx.x; i < size; i += kSelectThreads) {
    const float v = row.value(i);
    if (!row.kept(v, i) || v + kMaxGumbel < winner_value) continue;
    if (typical.limit < INFINITY && typical.distance(v, row.maximum) > typical.limit) continue;
    const float noisy = v + gumbel(token_word(params.seed, position, i));
    const TokenKey key = token_key(noisy, i);
    if (key > winner) {
      winner = key;
      winner_value = noisy;
    }
  }
  winner = block_best(winner, s.scratch);
  return winner == 0 ? top.id : candidate_of(winner).id;
}

/// out[0]: the sampled token, out[1...]: the largest, all from log-softmax of `logits`.
__device__ void write_logprobs(const float* logits, int size, std::int32_t token, TokenLogprob* out,
                               SelectShared& s) {
  const float maximum = candidate_of(largest(logits, size, s)).value;
  double sum = 0;
  for (int i = threadIdx.x; i < size; i += kSelectThreads)
    sum += exp(static_cast<double>(logits[i]) - maximum);
  const double total = maximum + log(block_sum_double(sum, s));
  SelectRow row{logits, size, 1.0f, maximum, -INFINITY, 0, true};
  keep_top_k(row, kMaxLogprobs, s);
  if (threadIdx.x == 0) s.num_keys = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < size; i += kSelectThreads)
    if (row.kept(logits[i], i)) {
      const int at = atomicAdd(&s.num_keys, 1);
      if (at < kMaxLogprobs) s.keys[at] = token_key(logits[i], i);
    }
  __syncthreads();
  if (threadIdx.x == 0) s.num_keys = min(s.num_keys, kMaxLogprobs);
  __syncthreads();
  sort_keys(s);
  const int i = threadIdx.x;
  if (i < kMaxLogprobs) {
    out[1 + i] = {-INFINITY, -1};
    if (i < s.num_keys) {
      const Candidate c = candidate_of(s.keys[i]);
      out[1 + i] = {static_cast<float>(c.value - total), c.id};
    }
  }
  if (i == 0) out[0] = {static_cast<float>(logits[token] - total), token};
}

/// One block per sample.
__global__ void __launch_bounds__(kSelectThreads) sample_full_kernel(FullSampleArgs<Cuda> args) {
  __shared__ SelectShared shared;
  pdl_wait();
  pdl_trigger();
  const int sample = blockIdx.x;
  const std::int32_t position = args.positions[args.samples.rows[sample]];
  if (position < 0) return;
  const float* logits = args.logits.data + sample * args.logits.stride;
  const int size = static_cast<int>(args.vocab_size);
  const SlotParams& params = args.slots.params[args.samples.slots[sample]];
  const std::int32_t token = sample_row(logits, size, params, position + 1, shared);
  if (threadIdx.x == 0) args.tokens[sample] = token;
  if (args.logprobs != nullptr)
    write_logprobs(logits, size, token, args.logprobs + std::int64_t{sample} * (1 + kMaxLogprobs),
                   shared);
}

/// One block per row.
__global__ void __launch_bounds__(kSelectThreads) score_kernel(ScoreArgs<Cuda> args) {
  __shared__ SelectShared shared;
  pdl_wait();
  pdl_trigger();
  const std::int64_t row = blockIdx.x;
  write_logprobs(args.logits.data + row * args.logits.stride, static_cast<int>(args.vocab_size),
                 args.targets[row], args.logprobs + row * (1 + kMaxLogprobs), shared);
}

}  // namespace

void sample_full(Context<Cuda>& ctx, const FullSampleArgs<Cuda>& args) {
  if (args.samples.num_samples == 0) return;
  launch(ctx, dependent(dim3(args.samples.num_samples), dim3(kSelectThreads)), sample_full_kernel,
         args);
}

void score(Context<Cuda>& ctx, const ScoreArgs<Cuda>& args) {
  if (args.logits.rows == 0) return;
  launch(ctx, dependent(dim3(static_cast<unsigned>(args.logits.rows)), dim3(kSelectThreads)),
         score_kernel, args);
}

}  // namespace tandem::kernels
