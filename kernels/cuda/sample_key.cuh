// SPDX-License-Identifier: Apache-2.0
// The best of many tokens on the device: the noise of Gumbel-max sampling, with the same bits as on
// the CPU, a thread's search, and maxima of keys over a warp and a block. Device code only.
#pragma once

#include <cstdint>

#include "kernels/cuda/numeric.cuh"
#include "kernels/philox.h"
#include "kernels/sample.h"

namespace tandem::kernels {

/// -log(-log(1 - u)), as on the CPU.
__device__ __forceinline__ float gumbel(std::uint32_t word) {
  const float u = fminf(unit_interval(word), 0.99999994f);
  return -logf(-log1pf(-u));
}

/// What decides how a row of `ShardArgs` is sampled.
struct RowSampling {
  std::uint64_t seed = 0;
  float temperature = 0.0f;
  std::int32_t position = 0;  ///< Of the token to come.
};
__device__ __forceinline__ RowSampling row_sampling(const ShardArgs<Cuda>& args, int sample) {
  const SlotParams& params = args.slots.params[args.samples.slots[sample]];
  return {params.seed, params.temperature, args.positions[args.samples.rows[sample]] + 1};
}

/// One thread's search through logits of a row.
class BestSearch {
 public:
  __device__ __forceinline__ void look(float value, std::int32_t id, const RowSampling& row) {
    if (row.temperature > 0.0f) {
      value /= row.temperature;
      if (value + kMaxGumbel < value_) return;  // no noise can lift it
      value += gumbel(token_word(row.seed, row.position, id));
    }
    const bool better = value > value_ || (value == value_ && id < id_);  // NaN never is
    value_ = better ? value : value_;
    id_ = better ? id : id_;
  }
  __device__ TokenKey key() const { return token_key(value_, id_); }

 private:
  float value_ = -INFINITY;  // and the id are those of `no_token`
  std::int32_t id_ = 0x7fffffff;
};

__device__ __forceinline__ TokenKey warp_best(TokenKey key) {
#pragma unroll
  for (int mask = 16; mask > 0; mask >>= 1) {
    const TokenKey other = __shfl_xor_sync(0xffffffffu, key, mask);
    key = other > key ? other : key;
  }
  return key;
}

/// Best key of the block, given to every thread. `scratch` [32]; may be used again at once.
__device__ __forceinline__ TokenKey block_best(TokenKey key, TokenKey* scratch) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  key = warp_best(key);
  if (lane == 0) scratch[warp] = key;
  __syncthreads();
  key = warp_best(lane < warps ? scratch[lane] : 0);
  __syncthreads();
  return key;
}

}  // namespace tandem::kernels
