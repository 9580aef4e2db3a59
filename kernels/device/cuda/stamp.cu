// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/cuda/stamp.h"

#include "kernels/device/cuda/launch.cuh"

namespace tandem {
namespace {

__device__ std::uint64_t global_ns() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

constexpr int kThreads = 32;

/// Triggers first: what follows may start loading while this waits for what precedes.
__global__ void __launch_bounds__(kThreads) stamp_kernel(StampTimes* at, std::uint32_t* lines) {
  pdl_trigger();
  const std::uint64_t started = global_ns();
  pdl_wait();
  const std::uint64_t passed = global_ns();
  if (blockIdx.x == 0 && threadIdx.x == 0) *at = {passed, started};
  if (lines != nullptr)
    lines[blockIdx.x * kThreads + threadIdx.x] = static_cast<std::uint32_t>(passed);
}

}  // namespace

void enqueue_stamp(Context<Cuda>& ctx, StampTimes* at) {
  launch(ctx, {dim3(1), dim3(1), 0, true, 1}, stamp_kernel, at,
         static_cast<std::uint32_t*>(nullptr));
}

void enqueue_wide_stamp(Context<Cuda>& ctx, StampTimes* at, Span<std::uint32_t, Cuda> lines) {
  TANDEM_ASSERT(lines.size >= wide_stamp_words(ctx), "a wide stamp writes a line of each SM");
  launch(ctx, {dim3(static_cast<unsigned>(ctx.num_sms())), dim3(kThreads), 0, true, 1},
         stamp_kernel, at, lines.data);
}

}  // namespace tandem
