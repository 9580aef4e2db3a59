// SPDX-License-Identifier: Apache-2.0
#include "kernels/head.h"

#include "kernels/cuda/gemv.h"
#include "kernels/cuda/numeric.cuh"

namespace tandem::kernels {
namespace {

constexpr int kThreads = 256;

template <typename E>
__global__ void gather_rows_kernel(const std::int32_t* rows, const E* from,
                                   std::int64_t from_stride, E* to, std::int64_t to_stride,
                                   int columns) {
  pdl_wait();
  pdl_trigger();
  const E* source = from + rows[blockIdx.x] * from_stride;
  for (int i = threadIdx.x; i < columns; i += blockDim.x)
    to[blockIdx.x * to_stride + i] = source[i];
}

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
  const int hidden = static_cast<int>(args.normed.cols);
  launch(ctx, dependent(dim3(args.samples.num_samples), dim3(kThreads)),
         gather_rows_kernel<cuda_t<T>>, args.samples.rows, to_cuda(args.normed.data),
         args.normed.stride, to_cuda(args.gathered.data), args.gathered.stride, hidden);
  TensorView<const T, Cuda> gathered(args.gathered.data, args.samples.num_samples, hidden);
  gathered.stride = args.gathered.stride;
  TensorView<float, Cuda> logits = args.logits.slice_rows(0, args.samples.num_samples);
  if constexpr (sizeof(T) == 2)
    if (gemv(ctx, gathered, args.weight->data(), logits, args.scale, args.softcap)) return;
  matmul(ctx, gathered, *args.weight, logits);
  if (args.scale == 1.0f && args.softcap == 0.0f) return;
  const int columns = static_cast<int>(logits.cols);
  launch(ctx, dependent(dim3((columns + kThreads - 1) / kThreads, logits.rows), dim3(kThreads)),
         scale_logits_kernel, logits.data, logits.stride, columns, args.scale, args.softcap);
}

template void head<float>(Context<Cuda>&, const HeadArgs<float, Cuda>&);
template void head<BFloat16>(Context<Cuda>&, const HeadArgs<BFloat16, Cuda>&);
template void head<Float16>(Context<Cuda>&, const HeadArgs<Float16, Cuda>&);

}  // namespace tandem::kernels
