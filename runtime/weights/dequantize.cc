// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/dequantize.h"

#include <cstring>
#include <iterator>

#include "kernels/device/dtype.h"
#include "kernels/device/error.h"

namespace tandem::runtime {
namespace {

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

/// Non-linear 4-bit values of IQ4_NL.
constexpr float kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};

void iq4_nl(const std::byte* in, float* out) {
  const float scale = half(in);
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * kIq4Values[low_nibble(in[2 + i])];
    out[i + 16] = scale * kIq4Values[high_nibble(in[2 + i])];
  }
}

// Super-blocks of 256 values: groups of 16 or 32 share a scale (and minimum), which are themselves
// small integers times the super-block's half-precision scales.

int bits(std::byte value, int shift, int mask) {
  return std::to_integer<int>(value) >> shift & mask;
}

/// Value i of 2-bit values packed four to a byte, 32 apart.
int two_bits(const std::byte* packed, int i) {
  return bits(packed[i / 128 * 32 + i % 32], i % 128 / 32 * 2, 3);
}

/// Value i of 4-bit values packed two to a byte, 32 apart.
int four_bits(const std::byte* packed, int i) {
  return bits(packed[i / 64 * 32 + i % 32], i % 64 / 32 * 4, 15);
}

/// Bit i of 256 single bits, eight to a byte, 32 apart.
int one_bit(const std::byte* packed, int i) { return bits(packed[i % 32], i / 32, 1); }

void q2_k(const std::byte* in, float* out) {
  const std::byte *scales = in, *packed = in + 16;
  const float scale = half(in + 80), least = half(in + 82);
  for (int i = 0; i < 256; ++i) {
    const std::byte group = scales[i / 16];
    out[i] =
        scale * static_cast<float>(low_nibble(group)) * static_cast<float>(two_bits(packed, i)) -
        least * static_cast<float>(high_nibble(group));
  }
}

/// The 16 scales of Q3_K: four low bits in the first 8 bytes, two high bits in the last 4.
int q3_scale(const std::byte* scales, int group) {
  const int low = bits(scales[group % 8], group / 8 * 4, 15);
  return (low | bits(scales[8 + group % 4], group / 4 * 2, 3) << 4) - 32;
}

void q3_k(const std::byte* in, float* out) {
  const std::byte *high = in, *packed = in + 32, *scales = in + 96;
  const float scale = half(in + 108);
  for (int i = 0; i < 256; ++i) {
    const int value = two_bits(packed, i) - (one_bit(high, i) != 0 ? 0 : 4);
    out[i] = scale * static_cast<float>(q3_scale(scales, i / 16)) * static_cast<float>(value);
  }
}

/// Scale and minimum of one of 8 groups, six bits each in 12 bytes.
struct ScaleAndMin {
  float scale, least;
};
ScaleAndMin six_bits(const std::byte* scales, int group) {
  if (group < 4)
    return {static_cast<float>(bits(scales[group], 0, 63)),
            static_cast<float>(bits(scales[4 + group], 0, 63))};
  const std::byte low = scales[4 + group];
  return {static_cast<float>(low_nibble(low) | bits(scales[group - 4], 6, 3) << 4),
          static_cast<float>(high_nibble(low) | bits(scales[group], 6, 3) << 4)};
}

void q4_k(const std::byte* in, float* out) {
  const float scale = half(in), least = half(in + 2);
  for (int i = 0; i < 256; ++i) {
    const ScaleAndMin group = six_bits(in + 4, i / 32);
    out[i] = scale * group.scale * static_cast<float>(four_bits(in + 16, i)) - least * group.least;
  }
}

void q5_k(const std::byte* in, float* out) {
  const float scale = half(in), least = half(in + 2);
  for (int i = 0; i < 256; ++i) {
    const ScaleAndMin group = six_bits(in + 4, i / 32);
    const int value = four_bits(in + 48, i) | one_bit(in + 16, i) << 4;
    out[i] = scale * group.scale * static_cast<float>(value) - least * group.least;
  }
}

void q6_k(const std::byte* in, float* out) {
  const std::byte *low = in, *high = in + 128, *scales = in + 192;
  const float scale = half(in + 208);
  for (int i = 0; i < 256; ++i) {
    const int four = bits(low[i / 128 * 64 + i % 64], i % 128 / 64 * 4, 15);
    const int value = (four | two_bits(high, i) << 4) - 32;
    out[i] =
        scale * static_cast<float>(load<std::int8_t>(scales + i / 16)) * static_cast<float>(value);
  }
}

struct TypeInfo {
  std::string_view name;
  std::int64_t elements, bytes;                    ///< Of one block.
  void (*block)(const std::byte* in, float* out);  ///< Values of one block.
};

/// In the order of StorageType.
constexpr TypeInfo kTypes[] = {
    {"F32", 1, 4, plain<float>}, {"F16", 1, 2, plain<Float16>}, {"BF16", 1, 2, plain<BFloat16>},
    {"Q8_0", 32, 34, q8_0},      {"Q4_0", 32, 18, q4_0},        {"Q4_1", 32, 20, q4_1},
    {"Q5_0", 32, 22, q5_0},      {"Q5_1", 32, 24, q5_1},        {"IQ4_NL", 32, 18, iq4_nl},
    {"Q2_K", 256, 84, q2_k},     {"Q3_K", 256, 110, q3_k},      {"Q4_K", 256, 144, q4_k},
    {"Q5_K", 256, 176, q5_k},    {"Q6_K", 256, 210, q6_k},      {"dummy", 1, 0, nullptr},
};
static_assert(std::size(kTypes) == static_cast<std::size_t>(StorageType::kDummy) + 1);

const TypeInfo& info(StorageType type) { return kTypes[static_cast<std::size_t>(type)]; }

}  // namespace

std::int64_t block_elements(StorageType type) { return info(type).elements; }
std::int64_t block_bytes(StorageType type) { return info(type).bytes; }
std::string_view name(StorageType type) { return info(type).name; }

void dequantize(StorageType type, const std::byte* blocks, std::int64_t num_blocks, float* out) {
  const TypeInfo& of = info(type);
  TANDEM_ASSERT(of.block != nullptr, "no values in blocks of type ", of.name);
  for (std::int64_t i = 0; i < num_blocks; ++i)
    of.block(blocks + i * of.bytes, out + i * of.elements);
}

}  // namespace tandem::runtime
