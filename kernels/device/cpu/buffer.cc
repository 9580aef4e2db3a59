// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/buffer.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>

#include "kernels/device/allocation_counter.h"
#include "kernels/device/host_buffer.h"

namespace tandem {
namespace {
std::atomic<std::int64_t> allocations{0};
constexpr std::size_t kAlignment = 256;

/// glibc raises its threshold for blocks that are mapped one by one with every such block freed,
/// and then keeps what is freed later: staging memory of a load would stay resident for ever.
void return_large_blocks() {
#ifdef M_MMAP_THRESHOLD
  static const int done = mallopt(M_MMAP_THRESHOLD, 1 << 20);
  static_cast<void>(done);
#endif
}
}  // namespace

std::int64_t allocation_count() noexcept { return allocations.load(); }
void count_allocation() noexcept { allocations.fetch_add(1, std::memory_order_relaxed); }

void* allocate(Cpu, std::size_t size_bytes) {
  count_allocation();
  return_large_blocks();
  const std::size_t rounded = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, rounded);
  if (memory == nullptr)
    throw Error(concat("out of memory: ", size_bytes >> 20, " MiB asked for on the host"));
  return memory;
}

void deallocate(Cpu, void* memory) noexcept { std::free(memory); }

void* allocate_host(Cpu, std::size_t size_bytes) { return allocate(Cpu{}, size_bytes); }
void deallocate_host(Cpu, void* memory) noexcept { deallocate(Cpu{}, memory); }

}  // namespace tandem
