// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/cpu/page_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

#include "kernels/device/allocation_counter.h"
#include "kernels/device/error.h"

namespace tandem {
namespace {

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// Addresses for `size_bytes` from a huge page's boundary on; memory comes as it is touched.
std::shared_ptr<std::byte> map_block(std::size_t size_bytes) {
  const std::size_t mapped_bytes = size_bytes + kHugePageBytes;
  void* mapped =
      ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    throw Error(concat("out of memory: ", size_bytes >> 20, " MiB asked for on the host"));
  const auto address = reinterpret_cast<std::uintptr_t>(mapped);
  auto* begin = reinterpret_cast<std::byte*>(round_up(address, kHugePageBytes));
  ::madvise(begin, size_bytes, MADV_HUGEPAGE);  // a wish: kernels without it refuse, which is fine
  return {begin, [mapped, mapped_bytes](std::byte*) { ::munmap(mapped, mapped_bytes); }};
}

}  // namespace

std::shared_ptr<std::byte> PageArena::take(std::size_t size_bytes) {
  constexpr std::size_t kAlignment = 256;
  const std::size_t rounded = round_up(std::max<std::size_t>(size_bytes, 1), kAlignment);
  if (used_ + rounded > size_) {
    count_allocation();
    size_ = round_up(std::max(rounded, kBlockBytes), kHugePageBytes);
    block_ = map_block(size_);
    used_ = 0;
  }
  std::shared_ptr<std::byte> piece(block_, block_.get() + used_);
  used_ += rounded;
  return piece;
}

}  // namespace tandem
