// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/dequantize.h"

#include <cstring>

#include "kernels/device/dtype.h"
#include "kernels/device/error.h"

namespace tandem::runtime {
namespace {

struct TypeInfo {
  std::string_view name;
  std::int64_t elements, bytes;
};

TypeInfo info(StorageType type) {
  switch (type) {
    case StorageType::kF32:
      return {"F32", 1, 4};
    case StorageType::kF16:
      return {"F16", 1, 2};
    case StorageType::kBF16:
      return {"BF16", 1, 2};
    case StorageType::kQ8_0:
      return {"Q8_0", 32, 34};
    case StorageType::kQ4_0:
      return {"Q4_0", 32, 18};
    case StorageType::kQ4_1:
      return {"Q4_1", 32, 20};
    case StorageType::kQ5_0:
      return {"Q5_0", 32, 22};
    case StorageType::kQ5_1:
      return {"Q5_1", 32, 24};
    case StorageType::kQ2K:
      return {"Q2_K", 256, 84};
    case StorageType::kQ3K:
      return {"Q3_K", 256, 110};
    case StorageType::kQ4K:
      return {"Q4_K", 256, 144};
    case StorageType::kQ5K:
      return {"Q5_K", 256, 176};
    case StorageType::kQ6K:
      return {"Q6_K", 256, 210};
    case StorageType::kIQ4NL:
      return {"IQ4_NL", 32, 18};
    case StorageType::kDummy:
      return {"dummy", 1, 0};
  }
  TANDEM_ASSERT(false, "no such storage type");
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

float half(const std::byte* at) { return load<Float16>(at); }

template <typename T>
void plain(const std::byte* in, float* out) {
  *out = load<T>(in);
}

void q8_0(const std::byte* in, float* out) {
  const float scale = half(in);
  for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(load<std::int8_t>(in + 2 + i));
}

int low_nibble(std::byte value) { return std::to_integer<int>(value) & 15; }
int high_nibble(std::byte value) { return std::to_integer<int>(value) >> 4; }

void q4_0(const std::byte* in, float* out) {
  const float scale = half(in);
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>(low_nibble(in[2 + i]) - 8);
    out[i + 16] = scale * static_cast<float>(high_nibble(in[2 + i]) - 8);
  }
}

void q4_1(const std::byte* in, float* out) {
  const float scale = half(in), least = half(in + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>(low_nibble(in[4 + i])) + least;
    out[i + 16] = scale * static_cast<float>(high_nibble(in[4 + i])) + least;
  }
}

/// Bit i of `high` is the fifth bit of value i.
int five_bits(std::uint32_t high, int i, int low) {
  return low | static_cast<int>((high >> i) & 1u) << 4;
}

void q5_0(const std::byte* in, float* out) {
  const float scale = half(in);
  const auto high = load<std::uint32_t>(in + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>(five_bits(high, i, low_nibble(in[6 + i])) - 16);
    out[i + 16] = scale * static_cast<float>(five_bits(high, i + 16, high_nibble(in[6 + i])) - 16);
  }
}

void q5_1(const std::byte* in, float* out) {
  const float scale = half(in), least = half(in + 2);
  const auto high = load<std::uint32_t>(in + 4);
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>(five_bits(high, i, low_nibble(in[8 + i]))) + least;
    out[i + 16] =
        scale * static_cast<float>(five_bits(high, i + 16, high_nibble(in[8 + i]))) + least;
  }
}

template <typename Block>
void each(StorageType type, const std::byte* in, std::int64_t count, float* out, Block block) {
  const TypeInfo size = info(type);
  for (std::int64_t i = 0; i < count; ++i) block(in + i * size.bytes, out + i * size.elements);
}

}  // namespace

std::int64_t block_elements(StorageType type) { return info(type).elements; }
std::int64_t block_bytes(StorageType type) { return info(type).bytes; }
std::string_view name(StorageType type) { return info(type).name; }

void dequantize(StorageType type, const std::byte* in, std::int64_t count, float* out) {
  switch (type) {
    case StorageType::kF32:
      return each(type, in, count, out, plain<float>);
    case StorageType::kF16:
      return each(type, in, count, out, plain<Float16>);
    case StorageType::kBF16:
      return each(type, in, count, out, plain<BFloat16>);
    case StorageType::kQ8_0:
      return each(type, in, count, out, q8_0);
    case StorageType::kQ4_0:
      return each(type, in, count, out, q4_0);
    case StorageType::kQ4_1:
      return each(type, in, count, out, q4_1);
    case StorageType::kQ5_0:
      return each(type, in, count, out, q5_0);
    case StorageType::kQ5_1:
      return each(type, in, count, out, q5_1);
    default:
      TANDEM_ASSERT(false, "no values in blocks of type ", name(type));
  }
}

}  // namespace tandem::runtime
