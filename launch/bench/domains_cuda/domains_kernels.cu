// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/domains_cuda/domains_kernels.h"

#include <cuda/atomic>

#include "kernels/device/cuda/launch.cuh"

namespace tandem::bench {
namespace {

constexpr int kVictimBlocks = 96;  // leaves SMs to the aggressor
constexpr std::uint64_t kPatienceNs = 2'000'000'000;

__device__ std::uint64_t global_ns() {
  std::uint64_t ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
  return ns;
}
__device__ std::uint32_t this_sm() {
  std::uint32_t sm;
  asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
  return sm;
}
__device__ std::uint32_t peek(const std::uint32_t* word) {
  return *const_cast<const volatile std::uint32_t*>(word);
}
__device__ void store_unit(uint4* to, const uint4& value) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}
__device__ uint4 load_unit(const uint4* from) {
  uint4 value;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}

/// Trace of block 0: the constructor's and the call's time.
class Tracer {
 public:
  __device__ explicit Tracer(BlockTrace* trace)
      : trace_(blockIdx.x == 0 && threadIdx.x == 0 ? trace : nullptr) {
    if (trace_ != nullptr) begin_ns_ = global_ns();
  }
  __device__ void finish(std::uint64_t iterations) {
    if (trace_ != nullptr) *trace_ = {begin_ns_, global_ns(), iterations, this_sm()};
  }

 private:
  BlockTrace* trace_;
  std::uint64_t begin_ns_ = 0;
};

__global__ void aggressor_kernel(AggressorArgs args) {
  const std::uint64_t begin_ns = global_ns();
  uint4* part = args.memory + blockIdx.x * args.block_units;
  uint4 seen = {};
  std::uint64_t iterations = 0;
  if (threadIdx.x == 0) atomicAdd_system(args.started, 1u);
  for (std::int64_t unit = threadIdx.x; peek(args.stop) == 0; ++iterations) {
    uint4* at = part + unit;
    if (args.traffic != Traffic::kStores) {
      const uint4 value = load_unit(at);
      seen.x ^= value.x;
    }
    if (args.traffic != Traffic::kLoads)
      store_unit(at, {static_cast<std::uint32_t>(iterations), seen.x, 0, 0});
    unit += kAggressorThreads;
    if (unit >= args.block_units) unit = threadIdx.x;
    if (iterations % 256 == 255 && global_ns() - begin_ns > kPatienceNs) break;
  }
  if (seen.x == 0x5eed5eedu) store_unit(part, seen);  // keeps the loads
  if (threadIdx.x == 0) args.traces[blockIdx.x] = {begin_ns, global_ns(), iterations, this_sm()};
}

__global__ void gate_kernel(const std::uint32_t* started, std::uint32_t blocks) {
  const std::uint64_t begin_ns = global_ns();
  while (peek(started) < blocks && global_ns() - begin_ns < kPatienceNs) __nanosleep(200);
}

__global__ void tiny_kernel(std::uint32_t* to, BlockTrace* trace) {
  Tracer tracer(trace);
  to[threadIdx.x] = threadIdx.x;
  tracer.finish(1);
}

__global__ void dirty_kernel(uint4* to, std::int64_t units, BlockTrace* trace) {
  Tracer tracer(trace);
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < units;
       i += threads)
    to[i] = {1, 2, 3, 4};
  tracer.finish(1);
}

__global__ void read_kernel(const uint4* from, std::int64_t units, std::uint32_t* to,
                            BlockTrace* trace) {
  Tracer tracer(trace);
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  std::uint32_t sum = 0;
#pragma unroll 8
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < units;
       i += threads) {
    const uint4 value = __ldcs(from + i);
    sum += value.x ^ value.y ^ value.z ^ value.w;
  }
  sum = __reduce_add_sync(~0u, sum);
  if (threadIdx.x == 0) to[blockIdx.x] = sum;
  tracer.finish(1);
}

template <FenceScope kScope>
__global__ void fence_kernel(int rounds, std::uint32_t* to, std::uint32_t* cycles,
                             BlockTrace* trace) {
  Tracer tracer(trace);
  volatile std::uint32_t* own = to + (blockIdx.x * blockDim.x + threadIdx.x) * 32;
  for (int i = 0; i < rounds; ++i) {
    *own = static_cast<std::uint32_t>(i);
    const long long begin = clock64();
    if constexpr (kScope == FenceScope::kDevice)
      __threadfence();
    else
      __threadfence_system();
    const auto passed = static_cast<std::uint32_t>(clock64() - begin);
    if (threadIdx.x == 0) cycles[blockIdx.x * rounds + i] = passed;
  }
  tracer.finish(static_cast<std::uint64_t>(rounds));
}

__global__ void grid_barrier_kernel(int rounds, std::uint32_t* counter, BlockTrace* trace) {
  Tracer tracer(trace);
  const cuda::atomic_ref<std::uint32_t, cuda::thread_scope_device> arrived(*counter);
  for (int i = 1; i <= rounds; ++i) {
    __syncthreads();
    if (threadIdx.x == 0) {
      arrived.fetch_add(1, cuda::memory_order_acq_rel);
      while (arrived.load(cuda::memory_order_acquire) < gridDim.x * static_cast<std::uint32_t>(i)) {
      }
    }
    __syncthreads();
  }
  tracer.finish(static_cast<std::uint64_t>(rounds));
}

template <cuda::thread_scope kScope>
__global__ void sender_kernel(MessageArgs args) {
  const cuda::atomic_ref<std::uint32_t, kScope> flag(*args.flag);
  const cuda::atomic_ref<std::uint32_t, cuda::thread_scope_system> answer(*args.acknowledged);
  const std::uint64_t end_ns = global_ns() + kPatienceNs;
  for (std::uint32_t round = 1; round <= static_cast<std::uint32_t>(args.rounds); ++round) {
    for (std::int64_t i = threadIdx.x; i < args.words; i += blockDim.x) args.data[i] = round;
    __syncthreads();
    if (threadIdx.x == 0) {
      flag.store(round, cuda::memory_order_release);
      while (answer.load(cuda::memory_order_acquire) < round && global_ns() < end_ns) {
      }
    }
    __syncthreads();
  }
}

template <cuda::thread_scope kScope>
__global__ void receiver_kernel(MessageArgs args) {
  const cuda::atomic_ref<std::uint32_t, kScope> flag(*args.flag);
  const cuda::atomic_ref<std::uint32_t, cuda::thread_scope_system> answer(*args.acknowledged);
  const std::uint64_t end_ns = global_ns() + kPatienceNs;
  unsigned long long stale = 0;
  for (std::uint32_t round = 1; round <= static_cast<std::uint32_t>(args.rounds); ++round) {
    if (threadIdx.x == 0)
      while (flag.load(cuda::memory_order_acquire) < round && global_ns() < end_ns) {
      }
    __syncthreads();
    // from the last word: it was written last
    for (std::int64_t i = args.words - 1 - threadIdx.x; i >= 0; i -= blockDim.x)
      stale += args.data[i] != round;
    __syncthreads();
    if (threadIdx.x == 0) answer.store(round, cuda::memory_order_release);
  }
  atomicAdd(args.stale, stale);
}

constexpr int kMessageThreads = 256;

}  // namespace

void load_domains_kernels() {
  const void* kernels[] = {
      reinterpret_cast<const void*>(aggressor_kernel),
      reinterpret_cast<const void*>(gate_kernel),
      reinterpret_cast<const void*>(tiny_kernel),
      reinterpret_cast<const void*>(dirty_kernel),
      reinterpret_cast<const void*>(read_kernel),
      reinterpret_cast<const void*>(fence_kernel<FenceScope::kDevice>),
      reinterpret_cast<const void*>(fence_kernel<FenceScope::kSystem>),
      reinterpret_cast<const void*>(grid_barrier_kernel),
      reinterpret_cast<const void*>(sender_kernel<cuda::thread_scope_device>),
      reinterpret_cast<const void*>(sender_kernel<cuda::thread_scope_system>),
      reinterpret_cast<const void*>(receiver_kernel<cuda::thread_scope_device>),
      reinterpret_cast<const void*>(receiver_kernel<cuda::thread_scope_system>)};
  cudaFuncAttributes attributes{};
  for (const void* kernel : kernels) TANDEM_CHECK(cudaFuncGetAttributes(&attributes, kernel));
}

void launch_aggressor(Stream<Cuda>& stream, const AggressorArgs& args) {
  aggressor_kernel<<<static_cast<unsigned>(args.blocks), kAggressorThreads, 0, stream.handle()>>>(
      args);
  TANDEM_CHECK(cudaGetLastError());
}

void launch_gate(Context<Cuda>& ctx, const std::uint32_t* started, int blocks) {
  launch(ctx, {dim3(1), dim3(1)}, gate_kernel, started, static_cast<std::uint32_t>(blocks));
}

void launch_tiny(Context<Cuda>& ctx, std::uint32_t* to, BlockTrace* trace, bool remote) {
  cudaLaunchAttribute domain{};
  domain.id = cudaLaunchAttributeMemSyncDomain;
  domain.val.memSyncDomain =
      remote ? cudaLaunchMemSyncDomainRemote : cudaLaunchMemSyncDomainDefault;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(32);
  config.stream = ctx.compute().handle();
  config.attrs = &domain;
  config.numAttrs = 1;
  TANDEM_CHECK(cudaLaunchKernelEx(&config, tiny_kernel, to, trace));
}

void launch_dirty(Context<Cuda>& ctx, uint4* to, std::int64_t size_bytes, BlockTrace* trace) {
  launch(ctx, {dim3(kVictimBlocks), dim3(256)}, dirty_kernel, to, size_bytes / 16, trace);
}

void launch_read(Context<Cuda>& ctx, const uint4* from, std::int64_t size_bytes, std::uint32_t* to,
                 BlockTrace* trace) {
  launch(ctx, {dim3(2 * kVictimBlocks), dim3(512)}, read_kernel, from, size_bytes / 16, to, trace);
}

void launch_fences(Context<Cuda>& ctx, FenceScope scope, int blocks, int rounds, std::uint32_t* to,
                   std::uint32_t* cycles, BlockTrace* trace) {
  launch(ctx, {dim3(static_cast<unsigned>(blocks)), dim3(32)},
         scope == FenceScope::kDevice ? fence_kernel<FenceScope::kDevice>
                                      : fence_kernel<FenceScope::kSystem>,
         rounds, to, cycles, trace);
}

void launch_grid_barriers(Context<Cuda>& ctx, int blocks, int rounds, std::uint32_t* counter,
                          BlockTrace* trace) {
  launch(ctx, {dim3(static_cast<unsigned>(blocks)), dim3(128)}, grid_barrier_kernel, rounds,
         counter, trace);
}

void launch_sender(Stream<Cuda>& stream, const MessageArgs& args) {
  const auto kernel = args.scope == FenceScope::kDevice ? sender_kernel<cuda::thread_scope_device>
                                                        : sender_kernel<cuda::thread_scope_system>;
  kernel<<<1, kMessageThreads, 0, stream.handle()>>>(args);
  TANDEM_CHECK(cudaGetLastError());
}

void launch_receiver(Context<Cuda>& ctx, const MessageArgs& args) {
  launch(ctx, {dim3(1), dim3(kMessageThreads)},
         args.scope == FenceScope::kDevice ? receiver_kernel<cuda::thread_scope_device>
                                           : receiver_kernel<cuda::thread_scope_system>,
         args);
}

}  // namespace tandem::bench
