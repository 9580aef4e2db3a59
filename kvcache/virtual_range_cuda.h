// SPDX-License-Identifier: Apache-2.0
// `VirtualRange` over CUDA virtual memory: addresses are reserved once, physical segments are
// created and mapped from the front (CUDA driver API, "Virtual Memory Management"). A call costs
// 60-150 us whatever the segment's size, so segments are 64 MiB or more. `map_to` makes the GPU
// current for its thread and may run on a helper thread while graphs replay on what is mapped;
// one thread at a time. Buffers for communication never live here.
#pragma once

#include <cuda.h>

#include <vector>

#include "kvcache/virtual_range.h"

namespace tandem::kvcache {

template <>
class VirtualRange<Cuda> {
 public:
  /// Of the current GPU. Both sizes are rounded up to the GPU's granularity (2 MiB), reservation to
  /// whole segments; throws CudaError when the address space is short.
  VirtualRange(std::size_t reserve_bytes, std::size_t segment_bytes);
  VirtualRange(const VirtualRange&) = delete;
  VirtualRange& operator=(const VirtualRange&) = delete;
  /// The GPU must be done with the memory.
  ~VirtualRange();

  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
  std::size_t reserved_bytes() const { return reserved_bytes_; }
  std::size_t mapped_bytes() const { return mapped_bytes_.load(std::memory_order_acquire); }
  std::size_t segment_bytes() const { return segment_bytes_; }

  /// Maps whole segments until `size_bytes` are usable; false (and nothing changed beyond whole
  /// segments that did fit) when memory or the reservation ran out. Synchronous.
  bool map_to(std::size_t size_bytes);

 private:
  bool map_segment(std::size_t offset);

  int device_ = 0;
  CUdeviceptr address_ = 0;
  std::size_t reserved_bytes_ = 0, segment_bytes_ = 0;
  std::atomic<std::size_t> mapped_bytes_{0};
  std::vector<CUmemGenericAllocationHandle> segments_;
};

}  // namespace tandem::kvcache
