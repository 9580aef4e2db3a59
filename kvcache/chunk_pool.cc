// SPDX-License-Identifier: Apache-2.0
#include "kvcache/chunk_pool.h"

#include <algorithm>

#include "kernels/device/error.h"

namespace tandem::kvcache {

ChunkPool::ChunkPool(std::int32_t mapped, std::int32_t max, std::int32_t growth)
    : mapped_(mapped), growth_(growth) {
  TANDEM_ASSERT(1 <= mapped && mapped <= max && growth >= 0, "chunk pool: mapped ", mapped,
                ", max ", max, ", growth ", growth);
  references_.assign(static_cast<std::size_t>(max), 0);
}

std::optional<std::int32_t> ChunkPool::allocate() {
  std::int32_t chunk = 0;
  if (!recycled_.empty()) {
    chunk = recycled_.back();
    recycled_.pop_back();
  } else if (next_untouched_ < mapped_) {
    chunk = next_untouched_++;
  } else {
    return std::nullopt;
  }
  references_[chunk] = 1;
  return chunk;
}

void ChunkPool::retain(std::int32_t chunk) {
  TANDEM_ASSERT(references(chunk) > 0, "chunk ", chunk, " is not in use");
  ++references_[chunk];
}

void ChunkPool::release(std::int32_t chunk) {
  TANDEM_ASSERT(references(chunk) > 0, "chunk ", chunk, " is not in use");
  if (--references_[chunk] == 0) recycled_.push_back(chunk);
}

std::int32_t ChunkPool::references(std::int32_t chunk) const {
  TANDEM_ASSERT(0 < chunk && chunk < max(), "no chunk ", chunk, " in a pool of ", max());
  return references_[chunk];
}

bool ChunkPool::grow() {
  if (growth_ == 0 || mapped_ == max()) return false;
  mapped_ = std::min(mapped_ + growth_, max());
  return true;
}

std::int32_t ChunkPool::num_free() const {
  return static_cast<std::int32_t>(recycled_.size()) + mapped_ - next_untouched_;
}

std::int32_t ChunkPool::num_obtainable() const {
  return num_free() + (growth_ > 0 ? max() - mapped_ : 0);
}

}  // namespace tandem::kvcache
