// SPDX-License-Identifier: Apache-2.0
// The one way to launch a kernel of ours: `launch(ctx, {grid, block, shared}, kernel, args...)` on
// the compute stream, with every error checked.
//
// Programmatic dependent launch (CUDA programming guide, same name): a kernel launched with
// `dependent` may start while its predecessor still runs. The rule that makes this safe along a
// chain: EVERY block, early exits included, calls `pdl_wait()` before it ends, before its first
// read of anything a predecessor writes, and before any write to memory that a running grid may
// still read. Only constants (weights, tables) are touched before the wait. `pdl_trigger()` lets
// the successor start; it says nothing about memory. No PDL edge may cross a change of memory sync
// domain: launches on other streams than compute never have one.
#pragma once

#include <cuda_runtime.h>

#include "kernels/device/cuda/check.h"
#include "kernels/device/cuda/context.h"

namespace tandem {

#ifdef __CUDACC__
/// Nothing, but for the build of the kernels that checks the rule (tests/pdl): there a quarter of
/// the warps, chosen anew by the clock, come up to 16 us late.
__device__ __forceinline__ void pdl_delay() {
#ifdef TANDEM_PDL_DELAYS
  const long long begin = clock64();
  auto random = static_cast<std::uint32_t>(begin) ^ (blockIdx.x * 0x9e3779b9u) ^
                (threadIdx.x / 32 * 0x7feb352du);
  random = (random ^ (random >> 15)) * 0x2c1b3c6du;
  random = (random ^ (random >> 12)) * 0x297a2d39u;
  random ^= random >> 15;
  const long long cycles = random % 4 == 0 ? random >> 17 : 0;
  while (clock64() - begin < cycles) continue;
#endif
}
/// Waits until all grids this one depends on are complete and their writes are visible.
__device__ __forceinline__ void pdl_wait() {
  pdl_delay();
  cudaGridDependencySynchronize();
}
/// Lets the dependent grid start as soon as all blocks have called it or ended.
__device__ __forceinline__ void pdl_trigger() {
  cudaTriggerProgrammaticLaunchCompletion();
  pdl_delay();
}
#endif

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;  ///< Dynamic shared memory.
  bool dependent = false;        ///< PDL: the kernel keeps the rule above.
  int cluster = 1;               ///< Blocks of a cluster, along x.
};

/// Enqueues `kernel` on `stream`. `dependent` counts only on the compute stream of `ctx`.
template <typename... Params, typename... Args>
void launch_on(Context<Cuda>& ctx, Stream<Cuda>& stream, const LaunchShape& shape,
               void (*kernel)(Params...), Args&&... args) {
  constexpr std::size_t kDefaultSharedBytes = 48 * 1024;
  if (shape.shared_bytes > kDefaultSharedBytes)
    TANDEM_CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                      cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(shape.shared_bytes)));
  // Every kernel splits an SM's memory in the same way. Where two differ, an SM has to run empty
  // before the second may start on it, and nothing is left of the overlap of a dependent launch.
  TANDEM_CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                    cudaFuncAttributePreferredSharedMemoryCarveout,
                                    cudaSharedmemCarveoutMaxShared));
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream.handle();
  config.attrs = attributes;
  if (shape.dependent && ctx.programmatic_launch() && &stream == &ctx.compute()) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs].val.clusterDim.x = static_cast<unsigned>(shape.cluster);
    attributes[config.numAttrs].val.clusterDim.y = 1;
    attributes[config.numAttrs++].val.clusterDim.z = 1;
  }
  TANDEM_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...));
  ctx.count_kernel();
}

template <typename... Params, typename... Args>
void launch(Context<Cuda>& ctx, const LaunchShape& shape, void (*kernel)(Params...),
            Args&&... args) {
  launch_on(ctx, ctx.compute(), shape, kernel, static_cast<Args&&>(args)...);
}

}  // namespace tandem
