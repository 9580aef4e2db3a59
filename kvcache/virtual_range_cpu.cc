// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "kernels/device/cpu/page_arena.h"
#include "kernels/device/error.h"
#include "kvcache/virtual_range.h"

namespace tandem::kvcache {
namespace {

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

VirtualRange<Cpu>::VirtualRange(std::size_t reserve_bytes, std::size_t segment_bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  segment_bytes_ = round_up(std::max<std::size_t>(segment_bytes, 1), page);
  reserved_bytes_ = round_up(std::max<std::size_t>(reserve_bytes, 1), segment_bytes_);
  void* memory = ::mmap(nullptr, reserved_bytes_ + kHugePageBytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(
        concat("cannot reserve ", reserved_bytes_ >> 20, " MiB of addresses for the KV cache"));
  addresses_ = memory;
  data_ = reinterpret_cast<std::byte*>(
      round_up(reinterpret_cast<std::uintptr_t>(memory), kHugePageBytes));
  // A wish. Smaller segments are to take no more memory than they say.
  if (segment_bytes_ >= kHugePageBytes) ::madvise(data_, reserved_bytes_, MADV_HUGEPAGE);
}

VirtualRange<Cpu>::~VirtualRange() { ::munmap(addresses_, reserved_bytes_ + kHugePageBytes); }

bool VirtualRange<Cpu>::map_to(std::size_t size_bytes) {
  while (mapped_bytes() < size_bytes) {
    const std::size_t mapped = mapped_bytes();
    if (mapped + segment_bytes_ > reserved_bytes_) return false;
    std::byte* segment = data_ + mapped;
    if (::mprotect(segment, segment_bytes_, PROT_READ | PROT_WRITE) != 0) return false;
    mapped_bytes_.store(mapped + segment_bytes_, std::memory_order_release);
  }
  return true;
}

}  // namespace tandem::kvcache
