// SPDX-License-Identifier: Apache-2.0
#include "kernels/head.h"

#include "kernels/cuda/gemv.h"
#include "kernels/cuda/numeric.cuh"
#include "kernels/gather_rows.h"

namespace tandem::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void scale_logits_kernel(float* logits, std::int64_t stride, int columns, float scale,
                                    float softcap) {
  pdl_wait();
  pdl_trigger();
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  float& logit = logits[blockIdx.y * stride + column];
  const float scaled = logit * scale;
  logit = softcap > 0.0f ? softcap * tanhf(scaled / softcap) : scaled;
}

/// The rows that are sampled, one after the other.
template <typename T>
TensorView<const T, Cuda> sampled_rows(Context<Cuda>& ctx, const HeadArgs<T, Cuda>& args) {
  if (args.samples.rows == nullptr) return args.normed;
  apply_deferred(ctx, args.deferred);
  const TensorView<T, Cuda> to = args.gathered.slice_rows(0, args.samples.num_samples);
  gather_rows<T>(ctx, {args.samples.rows, args.normed, to});
  TensorView<const T, Cuda> x(to.data, to.rows, args.normed.cols);
  x.stride = to.stride;
  return x;
}

template <typename T>
void multiply(Context<Cuda>& ctx, const HeadArgs<T, Cuda>& args,
              const TensorView<const T, Cuda>& x) {
  apply_deferred(ctx, args.deferred);
  const TensorView<float, Cuda> logits = args.logits.slice_rows(0, x.rows);
  if constexpr (sizeof(T) == 2)
    if (gemv(ctx, x, args.weight->data(), logits, args.scale, args.softcap)) return;
  matmul(ctx, x, *args.weight, logits);
  if (args.scale == 1.0f && args.softcap == 0.0f) return;
  const int columns = static_cast<int>(logits.cols);
  launch(ctx, dependent(dim3((columns + kThreads - 1) / kThreads, logits.rows), dim3(kThreads)),
         scale_logits_kernel, logits.data, logits.stride, columns, args.scale, args.softcap);
}

}  // namespace

template <typename T>
void head(Context<Cuda>& ctx, const HeadArgs<T, Cuda>& args) {
  if (args.samples.num_samples == 0) return;
  multiply(ctx, args, sampled_rows(ctx, args));
}

template <typename T>
void head_best(Context<Cuda>& ctx, const HeadArgs<T, Cuda>& args, const ShardArgs<Cuda>& shard,
               TokenKey* best) {
  if (args.samples.num_samples == 0) return;
  const TensorView<const T, Cuda> x = sampled_rows(ctx, args);
  if constexpr (sizeof(T) == 2)
    if (gemv_head(ctx, x, args, shard, best)) return;
  multiply(ctx, args, x);
  best_of_shard(ctx, shard, best);
}

#define TANDEM_INSTANTIATE(T)                                                               \
  template void head(Context<Cuda>&, const HeadArgs<T, Cuda>&);                             \
  template void head_best(Context<Cuda>&, const HeadArgs<T, Cuda>&, const ShardArgs<Cuda>&, \
                          TokenKey*);
TANDEM_INSTANTIATE(float)
TANDEM_INSTANTIATE(BFloat16)
TANDEM_INSTANTIATE(Float16)
#undef TANDEM_INSTANTIATE

}  // namespace tandem::kernels
