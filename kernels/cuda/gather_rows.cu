// SPDX-License-Identifier: Apache-2.0
#include "kernels/gather_rows.h"

#include "kernels/cuda/numeric.cuh"

namespace tandem::kernels {
namespace {

constexpr int kThreads = 256;

/// One block per row.
template <typename E>
__global__ void __launch_bounds__(kThreads)
    gather_rows_kernel(const std::int32_t* rows, const E* from, std::int64_t from_stride, E* to,
                       std::int64_t to_stride, int columns) {
  pdl_wait();
  pdl_trigger();
  const E* source = from + rows[blockIdx.x] * from_stride;
  for (int i = threadIdx.x; i < columns; i += kThreads) to[blockIdx.x * to_stride + i] = source[i];
}

}  // namespace

template <typename T>
void gather_rows(Context<Cuda>& ctx, const GatherRowsArgs<T, Cuda>& args) {
  if (args.out.rows == 0) return;
  launch(ctx, dependent(dim3(args.out.rows), dim3(kThreads)), gather_rows_kernel<cuda_t<T>>,
         args.rows, to_cuda(args.from.data), args.from.stride, to_cuda(args.out.data),
         args.out.stride, static_cast<int>(args.out.cols));
}

template void gather_rows<float>(Context<Cuda>&, const GatherRowsArgs<float, Cuda>&);
template void gather_rows<BFloat16>(Context<Cuda>&, const GatherRowsArgs<BFloat16, Cuda>&);
template void gather_rows<Float16>(Context<Cuda>&, const GatherRowsArgs<Float16, Cuda>&);

}  // namespace tandem::kernels
