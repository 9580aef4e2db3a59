// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/bf16_dot.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/intrinsics.h"

namespace tandem::kernels::cpu {
namespace {

/// Rows of x whose sums with the 64 rows of a block fit into the registers.
constexpr int kRowsAtOnce = 6;

#if defined(__x86_64__)
#define TANDEM_BF16_DOT __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

/// Products of `R` rows of x with one block. `x` is `[R, pairs]` pairs of columns, `sums` `[R,
/// 64]`. Unless null, `next` is a block that is to be asked for.
template <int R>
TANDEM_BF16_DOT void multiply(const BFloat16* block, const BFloat16* next, const std::int32_t* x,
                              std::int64_t pairs, float* sums) {
  constexpr int kWidth = 16, V = kBlockRows / kWidth;
  __m512 sum[R][V] = {};
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    const std::int64_t at = pair * 2 * kBlockRows;
    __m512i weight[V];
    for (int v = 0; v < V; ++v) {
      weight[v] = _mm512_loadu_si512(block + at + v * 2 * kWidth);
      if (next != nullptr) __builtin_prefetch(next + at + v * 2 * kWidth, 0, 2);
    }
    for (int r = 0; r < R; ++r) {
      const auto value = (__m512bh)_mm512_set1_epi32(x[r * pairs + pair]);
      for (int v = 0; v < V; ++v)
        sum[r][v] = _mm512_dpbf16_ps(sum[r][v], (__m512bh)weight[v], value);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) _mm512_storeu_ps(sums + r * kBlockRows + v * kWidth, sum[r][v]);
}
#undef TANDEM_BF16_DOT

/// The same for a number of rows from 1 to 6.
template <int R = 1>
void multiply_rows(int rows, const BFloat16* block, const BFloat16* next, const std::int32_t* x,
                   std::int64_t pairs, float* sums) {
  if (rows == R) return multiply<R>(block, next, x, pairs, sums);
  if constexpr (R < kRowsAtOnce) multiply_rows<R + 1>(rows, block, next, x, pairs, sums);
}
#endif

}  // namespace

#if defined(__x86_64__)
bool has_bf16_dot() {
  return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bw");
}

template <typename Out>
void bf16_dot_matmul(const PackedShape& shape, const BFloat16* packed,
                     TensorView<const BFloat16, Cpu> x, TensorView<Out, Cpu> y) {
  const std::int64_t cols = shape.padded_cols(), pairs = cols / 2;
  std::vector<std::int32_t> values(static_cast<std::size_t>(x.rows * pairs));
  for (std::int64_t row = 0; row < x.rows; ++row)
    std::memcpy(values.data() + row * pairs, x.row(row),
                static_cast<std::size_t>(x.cols) * sizeof(BFloat16));
  // The last pass over a block has as many rows as can be, because it asks for the next block
  // meanwhile; a single one goes as fast as memory.
  const std::int64_t last = std::min<std::int64_t>(x.rows, kRowsAtOnce), others = x.rows - last;
  const std::int64_t passes = 1 + (others + kRowsAtOnce - 1) / kRowsAtOnce;
#pragma omp parallel for
  for (std::int64_t block = 0; block < shape.blocks(); ++block) {
    const BFloat16* weight = packed + block * shape.block_size();
    const std::int64_t begin = block * kBlockRows, count = std::min(kBlockRows, shape.rows - begin);
    for (std::int64_t p = 0; p < passes; ++p) {
      const bool is_last = p == passes - 1;
      const std::int64_t row = is_last ? others : others * p / (passes - 1);
      const std::int64_t end = is_last ? x.rows : others * (p + 1) / (passes - 1);
      const auto rows = static_cast<int>(end - row);
      const BFloat16* next = is_last && p > 0 ? weight + shape.block_size() : nullptr;
      alignas(64) float sums[kRowsAtOnce * kBlockRows];
      multiply_rows(rows, weight, next, values.data() + row * pairs, pairs, sums);
      for (int r = 0; r < rows; ++r)
        for (std::int64_t i = 0; i < count; ++i)
          y.row(row + r)[begin + i] = Out(sums[r * kBlockRows + i]);
    }
  }
}
#else
bool has_bf16_dot() { return false; }

template <typename Out>
void bf16_dot_matmul(const PackedShape& shape, const BFloat16* packed,
                     TensorView<const BFloat16, Cpu> x, TensorView<Out, Cpu> y) {
  packed_matmul(shape, packed, x, y);
}
#endif

template void bf16_dot_matmul(const PackedShape&, const BFloat16*, TensorView<const BFloat16, Cpu>,
                              TensorView<float, Cpu>);
template void bf16_dot_matmul(const PackedShape&, const BFloat16*, TensorView<const BFloat16, Cpu>,
                              TensorView<BFloat16, Cpu>);

}  // namespace tandem::kernels::cpu
