// SPDX-License-Identifier: Apache-2.0
// Memory that grows in place: a range of addresses is reserved once for the largest cache that
// could ever be needed, and physical memory is mapped into it from the front, segment by segment.
// Addresses never change, data never moves, nothing is unmapped before destruction. `map_to` may
// be called from a helper thread while kernels work on what is mapped already.
#pragma once

#include <atomic>
#include <cstddef>

#include "kernels/device/device.h"

namespace tandem::kvcache {

template <Device D>
class VirtualRange;

/// mmap(PROT_NONE) reserve, mprotect to map; huge pages where the host gives them.
template <>
class VirtualRange<Cpu> {
 public:
  /// Both sizes are rounded up to pages; throws Error when the address space is short.
  VirtualRange(std::size_t reserve_bytes, std::size_t segment_bytes);
  VirtualRange(const VirtualRange&) = delete;
  VirtualRange& operator=(const VirtualRange&) = delete;
  ~VirtualRange();

  std::byte* data() const { return data_; }
  std::size_t reserved_bytes() const { return reserved_bytes_; }
  std::size_t mapped_bytes() const { return mapped_bytes_.load(std::memory_order_acquire); }
  std::size_t segment_bytes() const { return segment_bytes_; }

  /// Maps whole segments until `size_bytes` are usable; false (and nothing changed beyond whole
  /// segments that did fit) when memory ran out. Synchronous.
  bool map_to(std::size_t size_bytes);

 private:
  void* addresses_ = nullptr;  ///< What was reserved; `data_` begins on a huge page's boundary.
  std::byte* data_ = nullptr;
  std::size_t reserved_bytes_ = 0, segment_bytes_ = 0;
  std::atomic<std::size_t> mapped_bytes_{0};
};

}  // namespace tandem::kvcache
