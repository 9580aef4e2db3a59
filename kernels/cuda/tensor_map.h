// SPDX-License-Identifier: Apache-2.0
// Tensor maps: what TMA is told about a tensor in global memory. Encoding is host work of about a
// microsecond, touches no device memory, and is legal over a reserved range that is only partly
// mapped, so a map stays valid while the KV cache grows. Passed to kernels by value as
// `const __grid_constant__` parameters. Thread-safe.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <initializer_list>

#include "kernels/device/dtype.h"

namespace tandem::kernels {

/// One axis, fastest first. The first axis is contiguous: its stride is not looked at.
struct TensorMapAxis {
  std::int64_t size;          ///< Elements; a box part past it reads as zero.
  std::int64_t stride_bytes;  ///< A multiple of 16.
  std::int32_t box;           ///< Elements copied by one load, at most 256.
};

/// Boxes of 2-byte elements whose rows are 128 bytes, laid out in shared memory with the 128-byte
/// swizzle: 16-byte unit u of row r lies at unit u ^ (r % 8). `base` is 16-byte aligned.
/// InternalError when the driver refuses the shape.
CUtensorMap make_tensor_map(const void* base, DType type,
                            std::initializer_list<TensorMapAxis> axes);

}  // namespace tandem::kernels
