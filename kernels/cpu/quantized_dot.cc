// SPDX-License-Identifier: Apache-2.0
// Products of a weight of few bits with rows of x, by the CPU's 16-bit integer dot products
// (AVX512-VNNI) where it has them. Both ways below add the same integers and round the same floats.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/cpu/intrinsics.h"
#include "kernels/cpu/quantized_weight.h"
#include "kernels/cpu/vec_element.h"

namespace tandem::kernels::cpu {
namespace {

constexpr std::int64_t kColumns = QuantBlock::kValues;
/// Rows of x whose products with the 64 rows of a block fit into the registers.
constexpr int kRowsAtOnce = 4;
constexpr float kMost = 32767.0f, kRound = 12582912.0f;
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kSmallest = 1e-30f;  ///< Below it the inverse would overflow: taken for 0.
using Shorts = std::int16_t __attribute__((vector_size(2 * kFloats)));

/// Rows of x in 16 bits: value = scale of its group * word.
struct Rows {
  Rows(TensorView<const BFloat16, Cpu> x, int zero)
      : groups(x.cols / kColumns),
        words(static_cast<std::size_t>(x.rows * x.cols)),
        scales(static_cast<std::size_t>(x.rows * groups)),
        sums(scales.size()),
        starts(scales.size()) {
    for (std::int64_t row = 0; row < x.rows; ++row)
      for (std::int64_t g = 0; g < groups; ++g)
        take(x.row(row) + g * kColumns, static_cast<std::size_t>(row * groups + g), zero);
  }

  std::int64_t groups;
  std::vector<std::int16_t> words;   ///< [rows, cols]
  std::vector<float> scales, sums;   ///< [rows, groups]; of a group: its scale, its values' sum
  std::vector<std::int32_t> starts;  ///< [rows, groups] what its products begin with: -zero * words

 private:
  void take(const BFloat16* x, std::size_t index, int zero) {
    constexpr int kVectors = kColumns / kFloats;
    Floats values[kVectors];
    Ints most = {};  // of sizes as integers, which are in the same order, NaN last
    for (int v = 0; v < kVectors; ++v) {
      values[v] = load_floats(x + v * kFloats);
      const Ints size = cast<Ints>(values[v]) & 0x7fffffff;
      most = size < most ? most : size;
    }
    std::int32_t bits = 0;
    for (int i = 0; i < kFloats; ++i) bits = std::max(bits, most[i]);
    const auto largest = std::bit_cast<float>(bits);
    const float inverse = largest > kSmallest ? kMost / largest : 0.0f;
    Ints sum = {};
    for (int v = 0; v < kVectors; ++v) {
      // Adding 1.5 * 2^23 rounds to an integer, halves to the even one.
      const Ints word = cast<Ints>(values[v] * inverse + kRound) - cast<Ints>(splat(kRound));
      const auto narrow = __builtin_convertvector(word, Shorts);
      std::memcpy(words.data() + index * kColumns + v * kFloats, &narrow, sizeof narrow);
      sum += __builtin_convertvector(narrow, Ints);
    }
    std::int32_t total = 0;
    for (int i = 0; i < kFloats; ++i) total += sum[i];
    // Infinity and NaN go on as NaN.
    scales[index] = largest <= kLargest ? largest / kMost : NAN;
    sums[index] = scales[index] * static_cast<float>(total);
    starts[index] = -zero * total;
  }
};

/// A block of the weight beside rows [row, row + R) of x; `sums` `[R, 64]`.
void multiply_portable(const QuantizedShape& shape, const std::byte* block, const Rows& x,
                       std::int64_t row, float* sums) {
  std::fill(sums, sums + kBlockRows, 0.0f);
  for (std::int64_t g = 0; g < x.groups; ++g, block += shape.group_bytes()) {
    const auto index = static_cast<std::size_t>(row * x.groups + g);
    const std::int16_t* words = x.words.data() + index * kColumns;
    std::int32_t products[kBlockRows];
    std::fill(products, products + kBlockRows, x.starts[index]);
    const std::byte* codes = block + shape.codes_at();
    if (shape.format.bits == 8) {
      for (std::int64_t pair = 0; pair < kColumns / 2; ++pair)
        for (std::int64_t r = 0; r < kBlockRows; ++r)
          for (std::int64_t j = 0; j < 2; ++j)
            products[r] += words[2 * pair + j] *
                           static_cast<std::int8_t>(codes[(pair * kBlockRows + r) * 2 + j]);
    } else {
      for (std::int64_t eight = 0; eight < kColumns / 8; ++eight)
        for (std::int64_t r = 0; r < kBlockRows; ++r) {
          std::uint32_t word;
          std::memcpy(&word, codes + (eight * kBlockRows + r) * 4, sizeof word);
          for (int k = 0; k < 8; ++k)  // column 2k, then 2k + 1: lower half, upper half
            products[r] += words[eight * 8 + k] *
                           static_cast<std::int32_t>(word >> (k % 2 * 16 + k / 2 * 4) & 15u);
        }
    }
    Float16 halves[2 * kBlockRows];
    std::memcpy(halves, block, static_cast<std::size_t>(shape.codes_at()));
    for (std::int64_t r = 0; r < kBlockRows; ++r) {
      const float product = x.scales[index] * static_cast<float>(products[r]);
      sums[r] = std::fma(static_cast<float>(halves[r]), product, sums[r]);
      if (shape.format.has_least)
        sums[r] = std::fma(static_cast<float>(halves[kBlockRows + r]), x.sums[index], sums[r]);
    }
  }
}

#if defined(__x86_64__)
#define TANDEM_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))

TANDEM_VNNI inline __m512 load_halves(const std::byte* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

/// Two 16-bit values of row r of x, in every lane.
TANDEM_VNNI inline __m512i load_pair(const std::int16_t* words) {
  std::int32_t both;
  std::memcpy(&both, words, sizeof both);
  return _mm512_set1_epi32(both);
}

/// `multiply_portable` for `R` rows of x at once.
template <int R, int Bits, bool HasLeast>
TANDEM_VNNI void multiply(const QuantizedShape& shape, const std::byte* block, const Rows& x,
                          std::int64_t row, float* sums) {
  constexpr int kWidth = 16, V = kBlockRows / kWidth;
  constexpr int kPairs = Bits == 8 ? 1 : 4;  // of columns in one vector of codes
  const std::int64_t stride = x.groups * kColumns;
  __m512 sum[R][V] = {};
  for (std::int64_t g = 0; g < x.groups; ++g, block += shape.group_bytes()) {
    const auto index = static_cast<std::size_t>(row * x.groups + g);
    const std::int16_t* words = x.words.data() + index * kColumns;
    const std::byte* codes = block + (HasLeast ? 4 : 2) * kBlockRows;
    __m512i products[R][V];
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v)
        products[r][v] =
            _mm512_set1_epi32(x.starts[index + static_cast<std::size_t>(r * x.groups)]);
    for (int pair = 0; pair < kColumns / 2; pair += kPairs) {
      __m512i packed[V], code[V];
      for (int v = 0; v < V; ++v) {
        const std::byte* from = codes + (pair * kBlockRows + v * kWidth * kPairs) * Bits / 4;
        packed[v] =
            Bits == 8
                ? _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))
                : _mm512_loadu_si512(from);
      }
      for (int k = 0; k < kPairs; ++k) {
        for (int v = 0; v < V; ++v) {
          code[v] = Bits == 8 ? packed[v] : _mm512_and_si512(packed[v], _mm512_set1_epi16(15));
          packed[v] = _mm512_srli_epi16(packed[v], 4);
        }
        for (int r = 0; r < R; ++r) {
          const __m512i value = load_pair(words + r * stride + 2 * (pair + k));
          for (int v = 0; v < V; ++v)
            products[r][v] = _mm512_dpwssd_epi32(products[r][v], code[v], value);
        }
      }
    }
    for (int v = 0; v < V; ++v) {
      const __m512 scale = load_halves(block + 2 * v * kWidth);
      for (int r = 0; r < R; ++r) {
        const auto of = index + static_cast<std::size_t>(r * x.groups);
        const __m512 product =
            _mm512_mul_ps(_mm512_set1_ps(x.scales[of]), _mm512_cvtepi32_ps(products[r][v]));
        sum[r][v] = _mm512_fmadd_ps(scale, product, sum[r][v]);
        if constexpr (HasLeast)
          sum[r][v] = _mm512_fmadd_ps(load_halves(block + 2 * (kBlockRows + v * kWidth)),
                                      _mm512_set1_ps(x.sums[of]), sum[r][v]);
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) _mm512_storeu_ps(sums + r * kBlockRows + v * kWidth, sum[r][v]);
}
#undef TANDEM_VNNI

using Multiply = void (*)(const QuantizedShape&, const std::byte*, const Rows&, std::int64_t,
                          float*);
template <int R>
Multiply multiply_for(const QuantFormat& format) {
  if (format.bits == 8) return format.has_least ? multiply<R, 8, true> : multiply<R, 8, false>;
  return format.has_least ? multiply<R, 4, true> : multiply<R, 4, false>;
}

/// By the number of rows, from 1.
template <int... R>
Multiply pick(const QuantFormat& format, int rows, std::integer_sequence<int, R...>) {
  Multiply found = nullptr;
  ((rows == R + 1 ? void(found = multiply_for<R + 1>(format)) : void()), ...);
  return found;
}

bool has_word_dot() {
  return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bw");
}
#endif

void multiply_rows(const QuantizedShape& shape, const std::byte* block, const Rows& x,
                   std::int64_t row, int rows, float* sums, Loops loops) {
#if defined(__x86_64__)
  static const bool vectors = has_word_dot();
  if (vectors && loops == Loops::kFastest)
    return pick(shape.format, rows, std::make_integer_sequence<int, kRowsAtOnce>{})(shape, block, x,
                                                                                    row, sums);
#endif
  for (int r = 0; r < rows; ++r) multiply_portable(shape, block, x, row + r, sums + r * kBlockRows);
}

}  // namespace

template <typename Out>
void quantized_matmul(const QuantizedShape& shape, const std::byte* packed,
                      TensorView<const BFloat16, Cpu> x, TensorView<Out, Cpu> y, Loops loops) {
  const Rows rows(x, shape.format.zero);
  const std::int64_t passes = (x.rows + kRowsAtOnce - 1) / kRowsAtOnce;
#pragma omp parallel for
  for (std::int64_t block = 0; block < shape.blocks(); ++block) {
    const std::byte* weight = packed + block * shape.block_bytes();
    const std::int64_t begin = block * kBlockRows, count = std::min(kBlockRows, shape.rows - begin);
    for (std::int64_t p = 0; p < passes; ++p) {
      const std::int64_t row = x.rows * p / passes, end = x.rows * (p + 1) / passes;
      alignas(64) float sums[kRowsAtOnce * kBlockRows];
      multiply_rows(shape, weight, rows, row, static_cast<int>(end - row), sums, loops);
      for (std::int64_t r = row; r < end; ++r)
        for (std::int64_t i = 0; i < count; ++i)
          y.row(r)[begin + i] = Out(sums[(r - row) * kBlockRows + i]);
    }
  }
}

template void quantized_matmul(const QuantizedShape&, const std::byte*,
                               TensorView<const BFloat16, Cpu>, TensorView<float, Cpu>, Loops);
template void quantized_matmul(const QuantizedShape&, const std::byte*,
                               TensorView<const BFloat16, Cpu>, TensorView<BFloat16, Cpu>, Loops);

}  // namespace tandem::kernels::cpu
