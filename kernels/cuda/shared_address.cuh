// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::kernels {

/// What instructions call an address in the block's shared memory.
__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

}  // namespace tandem::kernels
