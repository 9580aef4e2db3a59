// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/quantized_weight.h"

#include <cstring>

#include "kernels/cpu/intrinsics.h"

namespace tandem::kernels::cpu {
namespace {

constexpr std::int64_t kColumns = QuantBlock::kValues;

/// Where the code of row `row` of a block and column `col` of a group lies: byte and bit.
struct Place {
  std::int64_t byte;
  int shift;
};
Place place(int bits, std::int64_t row, std::int64_t col) {
  if (bits == 8) return {col / 2 * (2 * kBlockRows) + row * 2 + col % 2, 0};
  // Bit 4k of a half-word of 16 bits, stored low byte first.
  const std::int64_t k = col % 8 / 2;
  return {col / 8 * (4 * kBlockRows) + row * 4 + col % 2 * 2 + k / 2, static_cast<int>(k % 2 * 4)};
}

int code_at(const QuantFormat& format, const std::byte* codes, std::int64_t row, std::int64_t col) {
  const Place at = place(format.bits, row, col);
  const int byte = std::to_integer<int>(codes[at.byte]);
  return format.bits == 8 ? static_cast<std::int8_t>(byte)
                          : ((byte >> at.shift) & 15) - format.zero;
}

Float16 half_at(const std::byte* halves, std::int64_t index) {
  Float16 value;
  std::memcpy(&value, halves + index * 2, sizeof value);
  return value;
}

void pack_row(const QuantizedShape& shape, const QuantBlock& from, std::int64_t row,
              std::byte* group) {
  std::memcpy(group + row * 2, &from.scale, 2);
  if (shape.format.has_least) std::memcpy(group + (kBlockRows + row) * 2, &from.least, 2);
  std::byte* codes = group + shape.codes_at();
  for (std::int64_t col = 0; col < kColumns; ++col) {
    const Place at = place(shape.format.bits, row, col);
    const int code = from.codes[col] + shape.format.zero;
    codes[at.byte] |= static_cast<std::byte>(code << at.shift);
  }
}

void unpack_portable(const QuantizedShape& shape, const std::byte* block, BFloat16* out) {
  for (std::int64_t g = 0; g < shape.groups(); ++g, block += shape.group_bytes())
    for (std::int64_t row = 0; row < kBlockRows; ++row) {
      const float scale = half_at(block, row);
      const float least = shape.format.has_least ? half_at(block, kBlockRows + row) : Float16();
      for (std::int64_t col = 0; col < kColumns; ++col) {
        const int code = code_at(shape.format, block + shape.codes_at(), row, col);
        out[(g * kColumns + col) / 2 * (2 * kBlockRows) + row * 2 + col % 2] =
            BFloat16(scale * static_cast<float>(code) + least);
      }
    }
}

#if defined(__x86_64__)
#define TANDEM_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

/// 16 rows x 2 columns from pairs of 16-bit codes, one pair in each word of 32 bits.
TANDEM_BF16 void store_pairs(__m512i codes, __m512 scale, __m512 least, BFloat16* out) {
  const __m512i even = _mm512_srai_epi32(_mm512_slli_epi32(codes, 16), 16);
  const __m512i odd = _mm512_srai_epi32(codes, 16);
  const auto low =
      (__m256i)_mm512_cvtneps_pbh(_mm512_fmadd_ps(_mm512_cvtepi32_ps(even), scale, least));
  const auto high =
      (__m256i)_mm512_cvtneps_pbh(_mm512_fmadd_ps(_mm512_cvtepi32_ps(odd), scale, least));
  _mm512_storeu_si512(out, _mm512_or_si512(_mm512_cvtepu16_epi32(low),
                                           _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16)));
}

TANDEM_BF16 __m512 load_halves(const std::byte* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

TANDEM_BF16 void unpack_vector(const QuantizedShape& shape, const std::byte* block, BFloat16* out) {
  constexpr int kWidth = 16;
  const __m512i zero = _mm512_set1_epi16(static_cast<short>(shape.format.zero));
  for (std::int64_t g = 0; g < shape.groups(); ++g, block += shape.group_bytes())
    for (int v = 0; v < kBlockRows / kWidth; ++v) {
      const __m512 scale = load_halves(block + 2 * v * kWidth);
      const __m512 least =
          shape.format.has_least ? load_halves(block + 2 * (kBlockRows + v * kWidth)) : __m512{};
      const std::byte* codes = block + shape.codes_at();
      BFloat16* to = out + g * kColumns * kBlockRows + v * 2 * kWidth;
      for (std::int64_t pair = 0; pair < kColumns / 2; ++pair, to += 2 * kBlockRows) {
        __m512i both;
        if (shape.format.bits == 8) {
          both = _mm512_cvtepi8_epi16(_mm256_loadu_si256(
              reinterpret_cast<const __m256i*>(codes + pair * 2 * kBlockRows + v * 2 * kWidth)));
        } else {
          both = _mm512_loadu_si512(codes + pair / 4 * 4 * kBlockRows + v * 4 * kWidth);
          both = _mm512_srl_epi16(both, _mm_cvtsi32_si128(static_cast<int>(pair % 4) * 4));
          both = _mm512_sub_epi16(_mm512_and_si512(both, _mm512_set1_epi16(15)), zero);
        }
        store_pairs(both, scale, least, to);
      }
    }
}
#undef TANDEM_BF16

bool has_vectors() {
  return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bw");
}
#else
bool has_vectors() { return false; }
void unpack_vector(const QuantizedShape&, const std::byte*, BFloat16*) {}
#endif

}  // namespace

void pack(const QuantizedShape& shape, const QuantBlock* row_major, std::byte* packed) {
  std::memset(packed, 0, static_cast<std::size_t>(shape.size_bytes()));
#pragma omp parallel for
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    std::byte* group = packed + row / kBlockRows * shape.block_bytes();
    for (std::int64_t g = 0; g < shape.groups(); ++g, group += shape.group_bytes())
      pack_row(shape, row_major[row * shape.groups() + g], row % kBlockRows, group);
  }
}

void unpack_row(const QuantizedShape& shape, const std::byte* packed, std::int64_t row,
                BFloat16* out) {
  const std::byte* group = packed + row / kBlockRows * shape.block_bytes();
  row %= kBlockRows;
  for (std::int64_t g = 0; g < shape.groups(); ++g, group += shape.group_bytes()) {
    const float scale = half_at(group, row);
    const float least = shape.format.has_least ? half_at(group, kBlockRows + row) : Float16();
    for (std::int64_t col = 0; col < kColumns; ++col)
      *out++ = BFloat16(
          scale * static_cast<float>(code_at(shape.format, group + shape.codes_at(), row, col)) +
          least);
  }
}

void unpack_block(const QuantizedShape& shape, const std::byte* block, BFloat16* out, Loops loops) {
  static const bool vectors = has_vectors();
  vectors&& loops == Loops::kFastest ? unpack_vector(shape, block, out)
                                     : unpack_portable(shape, block, out);
}

}  // namespace tandem::kernels::cpu
