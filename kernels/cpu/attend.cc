// SPDX-License-Identifier: Apache-2.0
#include "kernels/attend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/device/cpu/context.h"
#include "kernels/device/dtype.h"

namespace tandem::kernels {
namespace {

template <typename T>
float dot(const float* a, const T* b, std::int32_t size) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (std::int32_t i = 0; i < size; ++i) sum += a[i] * static_cast<float>(b[i]);
  return sum;
}

/// Softmax over a stream of tiles: running maximum, running sum, unnormalised output.
struct OnlineSoftmax {
  float maximum = -std::numeric_limits<float>::infinity();
  float sum = 0.0f;

  /// Scores become weights; returns what earlier output has to be scaled by.
  float absorb(float* scores, std::int32_t count) {
    const float before = maximum;
    maximum = std::max(maximum, *std::max_element(scores, scores + count));
    const float correction = before == maximum ? 1.0f : std::exp(before - maximum);
    sum *= correction;
    for (std::int32_t i = 0; i < count; ++i) {
      scores[i] = std::exp(scores[i] - maximum);
      sum += scores[i];
    }
    return correction;
  }
};

/// One query head of one row. `q` and `acc` are scratch of head_dim floats.
template <typename T>
void attend_head(const AttendArgs<T, Cpu>& args, std::int32_t row, std::int32_t head, float* q,
                 float* acc) {
  const KvView<T, Cpu>& kv = args.kv;
  const std::int32_t dim = kv.head_dim, position = args.step->positions[row];
  const std::int64_t slot = args.step->slots[row];
  const T* q_row = args.q.row(row) + std::int64_t{head} * dim;
  for (std::int32_t i = 0; i < dim; ++i) q[i] = static_cast<float>(q_row[i]) * args.scale;
  std::fill(acc, acc + dim, 0.0f);

  OnlineSoftmax softmax;
  float scores[kChunkTokens];
  const std::int32_t first = args.window > 0 ? std::max(0, position + 1 - args.window) : 0;
  for (std::int32_t begin = first; begin <= position;) {
    const std::int32_t chunk_index = begin / kChunkTokens, offset = begin % kChunkTokens;
    const std::int32_t count = std::min(kChunkTokens - offset, position + 1 - begin);
    const std::int64_t chunk = kv.chunk_table[slot * kv.table_stride + chunk_index];
    const T* keys = kv.base + chunk * kv.chunk_stride + args.layer * kv.layer_stride +
                    args.kv_head_of_q[head] * kv.head_stride() + std::int64_t{offset} * dim;
    const T* values = keys + kv.num_kv_heads * kv.head_stride();
    for (std::int32_t i = 0; i < count; ++i) {
      const float score = dot(q, keys + std::int64_t{i} * dim, dim);
      scores[i] = args.softcap > 0 ? args.softcap * std::tanh(score / args.softcap) : score;
    }
    const float correction = softmax.absorb(scores, count);
    if (correction != 1.0f)
      for (std::int32_t i = 0; i < dim; ++i) acc[i] *= correction;
    for (std::int32_t i = 0; i < count; ++i) {
      const T* value = values + std::int64_t{i} * dim;
      for (std::int32_t d = 0; d < dim; ++d) acc[d] += scores[i] * static_cast<float>(value[d]);
    }
    begin += count;
  }
  T* out = args.out.row(row) + std::int64_t{head} * dim;
  for (std::int32_t i = 0; i < dim; ++i) out[i] = T(acc[i] / softmax.sum);
}

}  // namespace

template <typename T>
void attend(Context<Cpu>&, const AttendArgs<T, Cpu>& args) {
  const std::int64_t heads = args.num_q_heads;
#pragma omp parallel
  {
    std::vector<float> scratch(static_cast<std::size_t>(2 * args.kv.head_dim));
#pragma omp for schedule(dynamic, 4)
    for (std::int64_t i = 0; i < args.step->num_tokens * heads; ++i) {
      const auto row = static_cast<std::int32_t>(i / heads),
                 head = static_cast<std::int32_t>(i % heads);
      if (args.step->positions[row] < 0) {
        T* out = args.out.row(row) + std::int64_t{head} * args.kv.head_dim;
        std::fill(out, out + args.kv.head_dim, T(0.0f));
        continue;
      }
      attend_head(args, row, head, scratch.data(), scratch.data() + args.kv.head_dim);
    }
  }
}

template void attend(Context<Cpu>&, const AttendArgs<float, Cpu>&);
template void attend(Context<Cpu>&, const AttendArgs<BFloat16, Cpu>&);
template void attend(Context<Cpu>&, const AttendArgs<Float16, Cpu>&);

}  // namespace tandem::kernels
