// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/buffer.h"

#include "kernels/device/allocation_counter.h"
#include "kernels/device/cuda/check.h"
#include "kernels/device/host_buffer.h"

namespace tandem {

void* allocate(Cuda, std::size_t size_bytes) {
  count_allocation();
  void* memory = nullptr;
  const cudaError_t code = cudaMalloc(&memory, size_bytes);
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free_bytes = 0, total_bytes = 0;
    TANDEM_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    throw Error(concat("out of GPU memory: ", size_bytes >> 20, " MiB asked for, ",
                       free_bytes >> 20, " of ", total_bytes >> 20,
                       " MiB free; lower --gpu-memory-utilization, --max-num-seqs or "
                       "--max-num-batched-tokens, or use more GPUs"));
  }
  TANDEM_CHECK(code);
  return memory;
}

void deallocate(Cuda, void* memory) noexcept { TANDEM_CHECK_NOEXCEPT(cudaFree(memory)); }

void* allocate_host(Cuda, std::size_t size_bytes) {
  count_allocation();
  void* memory = nullptr;
  TANDEM_CHECK(cudaMallocHost(&memory, size_bytes));
  return memory;
}

void deallocate_host(Cuda, void* memory) noexcept { TANDEM_CHECK_NOEXCEPT(cudaFreeHost(memory)); }

}  // namespace tandem
