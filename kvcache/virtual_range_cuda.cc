// SPDX-License-Identifier: Apache-2.0
#include "kvcache/virtual_range_cuda.h"

#include <algorithm>

#include "kernels/device/cuda/check.h"
#include "kernels/device/cuda/driver.h"

namespace tandem::kvcache {
namespace {

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

CUmemAllocationProp properties(int device) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device;
  return prop;
}

}  // namespace

VirtualRange<Cuda>::VirtualRange(std::size_t reserve_bytes, std::size_t segment_bytes) {
  TANDEM_CHECK(cudaGetDevice(&device_));
  TANDEM_CHECK(cudaSetDevice(device_));  // Makes the context: the driver calls below need it.
  const CUmemAllocationProp prop = properties(device_);
  std::size_t granularity = 0;
  TANDEM_CHECK(driver().mem_get_allocation_granularity(&granularity, &prop,
                                                       CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  segment_bytes_ = round_up(std::max<std::size_t>(segment_bytes, 1), granularity);
  reserved_bytes_ = round_up(std::max<std::size_t>(reserve_bytes, 1), segment_bytes_);
  TANDEM_CHECK(driver().mem_address_reserve(&address_, reserved_bytes_, 0, 0, 0));
  segments_.reserve(reserved_bytes_ / segment_bytes_);
}

VirtualRange<Cuda>::~VirtualRange() {
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    TANDEM_CHECK_NOEXCEPT(driver().mem_unmap(address_ + i * segment_bytes_, segment_bytes_));
    TANDEM_CHECK_NOEXCEPT(driver().mem_release(segments_[i]));
  }
  TANDEM_CHECK_NOEXCEPT(driver().mem_address_free(address_, reserved_bytes_));
}

bool VirtualRange<Cuda>::map_to(std::size_t size_bytes) {
  if (mapped_bytes() >= size_bytes) return true;
  TANDEM_CHECK(cudaSetDevice(device_));
  while (mapped_bytes() < size_bytes) {
    const std::size_t mapped = mapped_bytes();
    if (mapped + segment_bytes_ > reserved_bytes_ || !map_segment(mapped)) return false;
    mapped_bytes_.store(mapped + segment_bytes_, std::memory_order_release);
  }
  return true;
}

/// Create, map, grant access; undoes its own steps when a later one finds no memory.
bool VirtualRange<Cuda>::map_segment(std::size_t offset) {
  const CUmemAllocationProp prop = properties(device_);
  CUmemGenericAllocationHandle segment = 0;
  const CUresult created = driver().mem_create(&segment, segment_bytes_, &prop, 0);
  if (created == CUDA_ERROR_OUT_OF_MEMORY) return false;
  TANDEM_CHECK(created);
  const CUdeviceptr address = address_ + offset;
  CUresult code = driver().mem_map(address, segment_bytes_, 0, segment, 0);
  if (code == CUDA_SUCCESS) {
    CUmemAccessDesc access{};
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    code = driver().mem_set_access(address, segment_bytes_, &access, 1);
    if (code != CUDA_SUCCESS) TANDEM_CHECK_NOEXCEPT(driver().mem_unmap(address, segment_bytes_));
  }
  if (code != CUDA_SUCCESS) {
    TANDEM_CHECK_NOEXCEPT(driver().mem_release(segment));
    if (code == CUDA_ERROR_OUT_OF_MEMORY) return false;
    TANDEM_CHECK(code);
  }
  segments_.push_back(segment);  // Cannot throw: reserved for the whole range.
  return true;
}

}  // namespace tandem::kvcache
