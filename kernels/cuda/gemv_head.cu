// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/gemv.cuh"
#include "kernels/cuda/sample_key.cuh"

namespace tandem::kernels {
namespace {

/// Keeps the logits, and the best token of each row as it goes: one maximum per block and row.
struct HeadEpilogue {
  GemvStore<float> store;
  ShardArgs<Cuda> shard;
  int columns;  ///< That are tokens; the others are padding.
  TokenKey* best;
  RowSampling row;  ///< Of this thread.
  BestSearch search;

  static constexpr bool kNorms = true;
  static constexpr int kLate = 0;
  /// Rows and slots of a step are complete before its first layer starts.
  __device__ void before_wait(int sample, int) { row = row_sampling(shard, sample); }
  __device__ void start() const {}
  __device__ void load_first(int, int) const {}
  __device__ void load(int, int) const {}
  __device__ void operator()(int sample, int unit, float sum, float) {
    const float logit = store.keep(sample, unit, sum);
    if (unit < columns) search.look(logit, static_cast<int>(shard.vocab_begin) + unit, row);
  }
  __device__ void finish(int sample, int, int) {
    TokenKey key = search.key();
#pragma unroll
    for (int mask = GemvRows::kUnits / 2; mask > 0; mask >>= 1) {
      const TokenKey other = __shfl_xor_sync(0xffffffffu, key, mask);
      key = other > key ? other : key;
    }
    if (sample < shard.samples.num_samples && threadIdx.x % GemvRows::kUnits == 0)
      atomicMax(best + sample, key);
  }
};

}  // namespace

template <typename T>
bool gemv_head(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const HeadArgs<T, Cuda>& args,
               const ShardArgs<Cuda>& shard, TokenKey* best) {
  const T* w = args.weight->data();
  const TensorView<float, Cuda> logits = args.logits.slice_rows(0, x.rows);
  const MatmulShape shape = matmul_shape(x, logits);
  // Else as where all logits are wanted: with the same kernel, so that it makes no difference.
  if (decode_kernel_with_norm(ctx, shape, x.data, w, logits.data, args.deferred) !=
      DecodeKernel::kGemv)
    return false;
  HeadEpilogue epilogue{};
  epilogue.store = {logits.data, logits.stride, args.scale, args.softcap};
  epilogue.shard = shard;
  epilogue.columns =
      static_cast<int>(std::min<std::int64_t>(logits.cols, shard.vocab_size - shard.vocab_begin));
  epilogue.best = best;
  launch_gemv<GemvRows>(ctx, gemv_args<T>(x, w, args.deferred), logits.cols, epilogue);
  return true;
}

template bool gemv_head(Context<Cuda>&, TensorView<const BFloat16, Cuda>,
                        const HeadArgs<BFloat16, Cuda>&, const ShardArgs<Cuda>&, TokenKey*);
template bool gemv_head(Context<Cuda>&, TensorView<const Float16, Cuda>,
                        const HeadArgs<Float16, Cuda>&, const ShardArgs<Cuda>&, TokenKey*);

}  // namespace tandem::kernels
