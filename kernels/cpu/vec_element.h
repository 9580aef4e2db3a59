// SPDX-License-Identifier: Apache-2.0
// Eight elements of any type as floats and back, with the rounding of the type's own conversion.
#pragma once

#include <type_traits>

#include "kernels/cpu/vec.h"
#include "kernels/device/dtype.h"

namespace tandem::kernels::cpu {

using HalfWords = std::uint16_t __attribute__((vector_size(16)));

template <typename T>
Floats load_floats(const T* from) {
  if constexpr (std::is_same_v<T, float>) {
    return load<Floats>(from);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    // A bfloat16 is the upper half of a float.
    return cast<Floats>(__builtin_convertvector(load<HalfWords>(from), Words) << 16);
  } else {
    Floats values;
    for (int i = 0; i < kFloats; ++i) values[i] = static_cast<float>(from[i]);
    return values;
  }
}

template <typename T>
void store_floats(T* to, Floats values) {
  if constexpr (std::is_same_v<T, float>) {
    store(to, values);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    const Words words = cast<Words>(values);
    const Words rounded = (words + 0x7fffu + ((words >> 16) & 1u)) >> 16;
    const Words nan = (words >> 16) | 0x40u;
    store(&to->bits, __builtin_convertvector(values == values ? rounded : nan, HalfWords));
  } else {
    for (int i = 0; i < kFloats; ++i) to[i] = T(values[i]);
  }
}

}  // namespace tandem::kernels::cpu
