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

}  // namespace

template <typename T>
void head(Context<Cuda>& ctx, const HeadArgs<T, Cuda>& args) {
  if (args.samples.num_samples == 0) return;
  TensorView<const T, Cuda> x = args.normed;
  if (args.samples.rows != nullptr) {
    x = {args.gathered.data, args.samples.num_samples, args.normed.cols};
    x.stride = args.gathered.stride;
    gather_rows<T>(ctx, {args.samples.rows, args.normed,
                         args.gathered.slice_rows(0, args.samples.num_samples)});
  }
  TensorView<float, Cuda> logits = args.logits.slice_rows(0, args.samples.num_samples);
  if constexpr (sizeof(T) == 2)
    if (gemv(ctx, x, args.weight->data(), logits, args.scale, args.softcap)) return;
  matmul(ctx, x, *args.weight, logits);
  if (args.scale == 1.0f && args.softcap == 0.0f) return;
  const int columns = static_cast<int>(logits.cols);
  launch(ctx, dependent(dim3((columns + kThreads - 1) / kThreads, logits.rows), dim3(kThreads)),
         scale_logits_kernel, logits.data, logits.stride, columns, args.scale, args.softcap);
}

template void head<float>(Context<Cuda>&, const HeadArgs<float, Cuda>&);
template void head<BFloat16>(Context<Cuda>&, const HeadArgs<BFloat16, Cuda>&);
template void head<Float16>(Context<Cuda>&, const HeadArgs<Float16, Cuda>&);

}  // namespace tandem::kernels
