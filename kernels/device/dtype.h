// SPDX-License-Identifier: Apache-2.0
// Element types. `BFloat16` and `Float16` are plain 2-byte storage types that convert through
// float with round-to-nearest-even; only `.cu` files reinterpret them as CUDA's own types.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tandem {

enum class DType : std::uint8_t { kF32, kBF16, kF16 };

constexpr std::int64_t size_bytes(DType type) { return type == DType::kF32 ? 4 : 2; }
constexpr std::string_view name(DType type) {
  return type == DType::kF32 ? "float32" : type == DType::kBF16 ? "bfloat16" : "float16";
}

struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (word & 0x7fffffffu) > 0x7f800000u;
    const std::uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
    // A choice instead of a branch, so that loops of conversions become vector code.
    bits = static_cast<std::uint16_t>(is_nan ? (word >> 16) | 0x40u : rounded);
  }
  operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

struct Float16 {
  std::uint16_t bits = 0;
  Float16() = default;
  explicit Float16(float value) {
    const auto half = static_cast<_Float16>(value);
    std::memcpy(&bits, &half, sizeof bits);
  }
  operator float() const {
    _Float16 half;
    std::memcpy(&half, &bits, sizeof half);
    return static_cast<float>(half);
  }
};

template <typename T>
inline constexpr DType dtype_of = DType::kF32;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::kBF16;
template <>
inline constexpr DType dtype_of<Float16> = DType::kF16;

}  // namespace tandem
