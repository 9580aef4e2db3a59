// SPDX-License-Identifier: Apache-2.0
// Attention of so few queries that keys and values are used where they lie, each converted once for
// all queries: the way of decode. Head dimensions are multiples of 8.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/vec_element.h"

namespace tandem::kernels::cpu {

/// Lane i is the sum over the lanes of x[i].
inline Floats sums_of(const Floats (&x)[kFloats]) {
  const Ints even{0, 8, 2, 10, 4, 12, 6, 14}, odd{1, 9, 3, 11, 5, 13, 7, 15};
  const Ints even2{0, 1, 8, 9, 4, 5, 12, 13}, odd2{2, 3, 10, 11, 6, 7, 14, 15};
  const Ints low{0, 1, 2, 3, 8, 9, 10, 11}, high{4, 5, 6, 7, 12, 13, 14, 15};
  Floats pair[4], four[2];
  for (int i = 0; i < 4; ++i)
    pair[i] = __builtin_shuffle(x[2 * i], x[2 * i + 1], even) +
              __builtin_shuffle(x[2 * i], x[2 * i + 1], odd);
  for (int i = 0; i < 2; ++i)
    four[i] = __builtin_shuffle(pair[2 * i], pair[2 * i + 1], even2) +
              __builtin_shuffle(pair[2 * i], pair[2 * i + 1], odd2);
  return __builtin_shuffle(four[0], four[1], low) + __builtin_shuffle(four[0], four[1], high);
}

/// Asks for `count` elements that will be read soon: between two steps weights push keys and values
/// out of the caches, and their rows are too short for the hardware to run ahead.
template <typename T>
void prefetch(const T* from, std::int32_t count) {
  constexpr std::int32_t kLine = 64 / sizeof(T);
  for (std::int32_t i = 0; i < count; i += kLine) __builtin_prefetch(from + i);
}

/// scores[q][i] = q[q] . keys[i] for keys [from, to), asking for the values of the same tokens
/// meanwhile. q `[Q, dim]`, keys and values `[tokens, dim]`, scores `[Q, stride]`.
template <int Q, typename T>
void score_few(const float* q, const T* keys, const T* values, std::int32_t dim, std::int32_t from,
               std::int32_t to, float* scores, std::int32_t stride) {
  constexpr std::int32_t kAhead = 2 * kFloats;  ///< Tokens
  prefetch(keys + std::int64_t{from} * dim, std::min(to - from, kAhead) * dim);
  for (std::int32_t first = from; first < to; first += kFloats) {
    const std::int32_t count = std::min(to - first, kFloats);
    Floats sums[Q][kFloats];
    for (std::int32_t i = count; i < kFloats; ++i)
      for (int r = 0; r < Q; ++r) sums[r][i] = Floats{};
    prefetch(values + std::int64_t{first} * dim, count * dim);
    if (first + kAhead < to)
      prefetch(keys + std::int64_t{first + kAhead} * dim,
               std::min(to - first - kAhead, kFloats) * dim);
    for (std::int32_t i = 0; i < count; ++i) {
      const T* key = keys + std::int64_t{first + i} * dim;
      Floats sum[Q] = {};
      for (std::int32_t d = 0; d < dim; d += kFloats) {
        const Floats value = load_floats(key + d);
        for (int r = 0; r < Q; ++r) sum[r] += value * load<Floats>(q + r * dim + d);
      }
      for (int r = 0; r < Q; ++r) sums[r][i] = sum[r];
    }
    for (int r = 0; r < Q; ++r) {
      const Floats all = sums_of(sums[r]);
      std::memcpy(scores + r * stride + first, &all, sizeof(float) * std::size_t(count));
    }
  }
}

/// Columns [0, V * 8) of out.
template <int Q, int V, typename T>
void add_values_part(const float* weights, std::int32_t weight_stride, const T* values,
                     std::int32_t dim, std::int32_t from, std::int32_t to, float* out,
                     std::int32_t out_stride) {
  Floats sum[Q][V];
  for (int r = 0; r < Q; ++r)
    for (int v = 0; v < V; ++v) sum[r][v] = load<Floats>(out + r * out_stride + v * kFloats);
  for (std::int32_t i = from; i < to; ++i)
    for (int v = 0; v < V; ++v) {
      const Floats value = load_floats(values + std::int64_t{i} * dim + v * kFloats);
      for (int r = 0; r < Q; ++r) sum[r][v] += value * weights[r * weight_stride + i];
    }
  for (int r = 0; r < Q; ++r)
    for (int v = 0; v < V; ++v) store(out + r * out_stride + v * kFloats, sum[r][v]);
}

/// out[q] += sum of weights[q][i] values[i] over [from, to). weights `[Q, weight_stride]`, values
/// `[tokens, dim]`, out `[Q, out_stride]`.
template <int Q, typename T>
void add_values_few(const float* weights, std::int32_t weight_stride, const T* values,
                    std::int32_t dim, std::int32_t from, std::int32_t to, float* out,
                    std::int32_t out_stride) {
  constexpr int kVectors = Q <= 2 ? 4 : 2;  // sums, values and weights fit into 16 registers
  std::int32_t d = 0;
  for (; d + kVectors * kFloats <= dim; d += kVectors * kFloats)
    add_values_part<Q, kVectors>(weights, weight_stride, values + d, dim, from, to, out + d,
                                 out_stride);
  for (; d < dim; d += kFloats)
    add_values_part<Q, 1>(weights, weight_stride, values + d, dim, from, to, out + d, out_stride);
}

/// Calls `body(first, Q as a constant)` for parts of at most 4 of `queries`.
template <typename Body>
void in_parts_of_four(std::int32_t queries, const Body& body) {
  std::int32_t first = 0;
  for (; first + 4 <= queries; first += 4) body(first, std::integral_constant<int, 4>{});
  switch (queries - first) {
    case 3:
      return body(first, std::integral_constant<int, 3>{});
    case 2:
      return body(first, std::integral_constant<int, 2>{});
    case 1:
      return body(first, std::integral_constant<int, 1>{});
    default:
      return;
  }
}

}  // namespace tandem::kernels::cpu
