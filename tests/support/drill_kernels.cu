// SPDX-License-Identifier: Apache-2.0
#include "support/drill_kernels.h"

#include "kernels/device/cuda/launch.cuh"

namespace tandem::testing {
namespace {

__global__ void wedge_kernel(volatile int* never) {
  while (*never == 0) continue;
}
__global__ void fault_kernel(int* nowhere) { *nowhere = 1; }

}  // namespace

void launch_wedge(Context<Cuda>& ctx, Span<std::int32_t, Cuda> never) {
  launch(ctx, LaunchShape{dim3(static_cast<unsigned>(ctx.num_sms())), dim3(32)}, wedge_kernel,
         static_cast<volatile int*>(never.data));
}

void launch_fault(Context<Cuda>& ctx) {
  launch(ctx, LaunchShape{dim3(1), dim3(1)}, fault_kernel, reinterpret_cast<int*>(8));
}

}  // namespace tandem::testing
