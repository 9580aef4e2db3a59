// SPDX-License-Identifier: Apache-2.0
// Eight floats in one register, and e^x of them. GCC and clang turn them into the
// instructions of the target; nothing here names an instruction set.
#pragma once

#include <cstdint>
#include <cstring>

namespace tandem::kernels::cpu {

using Floats = float __attribute__((vector_size(32)));
using Words = std::uint32_t __attribute__((vector_size(32)));
using Ints = std::int32_t __attribute__((vector_size(32)));
inline constexpr int kFloats = 8;

template <typename V, typename T>
V load(const T* from) {
  V value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <typename V, typename T>
void store(T* to, V value) {
  std::memcpy(to, &value, sizeof value);
}
/// The same bits as another vector type.
template <typename To, typename From>
To cast(From from) {
  return load<To>(&from);
}
inline Floats splat(float x) { return Floats{} + x; }
inline float sum(Floats x) {
  float total = 0;
  for (int i = 0; i < kFloats; ++i) total += x[i];
  return total;
}

/// Within 2 units in the last place of e^x where that is a normal number; below it e^-87.3, above
/// it e^88.7; NaN stays NaN. Range reduction by ln 2 in two parts (Cody and Waite), polynomial of
/// Cephes' expf.
inline Floats exponential(Floats x) {
  const Floats least = splat(-87.33654f), most = splat(88.72283f);
  const Floats round = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  x = x < least ? least : x;
  x = x > most ? most : x;
  const Floats rounded = x * 1.44269504f + round;
  const Floats n = rounded - round;
  const Floats r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  Floats p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const Floats power = p * r * r + r + 1.0f;
  // 2^n in two steps, because 2^128 is no float.
  const Ints exponent = cast<Ints>(rounded) - cast<Ints>(round), half = exponent >> 1;
  return power * cast<Floats>((half + 127) << 23) * cast<Floats>((exponent - half + 127) << 23);
}

}  // namespace tandem::kernels::cpu
