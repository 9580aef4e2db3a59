// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/cuda/stamp.h"

#include "kernels/device/cuda/launch.cuh"

namespace tandem {
namespace {

/// One thread. Triggers first: what follows may start loading while this waits for what precedes.
__global__ void stamp_kernel(std::uint64_t* at) {
  pdl_trigger();
  pdl_wait();
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  *at = now;
}

}  // namespace

void enqueue_stamp(Context<Cuda>& ctx, std::uint64_t* at) {
  launch(ctx, {dim3(1), dim3(1), 0, true, 1}, stamp_kernel, at);
}

}  // namespace tandem
