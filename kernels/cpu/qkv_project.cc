// SPDX-License-Identifier: Apache-2.0
#include "kernels/qkv_project.h"

#include <vector>

#include "kernels/cpu/norm.h"
#include "kernels/device/cpu/context.h"

namespace tandem::kernels {
namespace {

void rotate(const RopeTable<Cpu>& rope, std::int32_t position, float* head) {
  const std::int32_t half = rope.rotary_dim / 2;
  const float* cos = rope.cos + std::int64_t{position} * half;
  const float* sin = rope.sin + std::int64_t{position} * half;
  for (std::int32_t i = 0; i < half; ++i) {
    const float a = head[i], b = head[i + half];
    head[i] = a * cos[i] - b * sin[i];
    head[i + half] = b * cos[i] + a * sin[i];
  }
}

/// Where token `position` of `slot` keeps head `head` of K (`is_value` 0) or V (1).
template <typename T>
T* cache_row(const KvView<T, Cpu>& kv, std::int32_t layer, std::int32_t slot, std::int32_t position,
             std::int32_t head, std::int32_t is_value) {
  const std::int64_t chunk =
      kv.chunk_table[std::int64_t{slot} * kv.table_stride + position / kChunkTokens];
  const std::int64_t index = std::int64_t{is_value} * kv.num_kv_heads + head;
  return kv.base + chunk * kv.chunk_stride + layer * kv.layer_stride + index * kv.head_stride() +
         std::int64_t{position % kChunkTokens} * kv.head_dim;
}

/// Bias, norm and rotary embedding of one head of one row; `x` is scratch of head_dim floats.
template <typename T>
void finish_head(const QkvArgs<T, Cpu>& args, const T* in, std::int64_t column,
                 const Norm<Cpu>& norm, bool rotary, std::int32_t position, float* x, T* out) {
  const std::int32_t dim = args.kv.head_dim;
  for (std::int32_t i = 0; i < dim; ++i)
    x[i] = static_cast<float>(in[i]) + (args.bias == nullptr ? 0.0f : args.bias[column + i]);
  if (norm.weight != nullptr) {
    const float inverse = cpu::inverse_rms(x, dim, norm.eps);
    for (std::int32_t i = 0; i < dim; ++i) x[i] *= inverse * norm.weight[i];
  }
  if (rotary && args.rope.cos != nullptr) rotate(args.rope, position, x);
  for (std::int32_t i = 0; i < dim; ++i) out[i] = T(x[i]);
}

template <typename T>
void finish_row(const QkvArgs<T, Cpu>& args, std::int32_t row, float* x) {
  const std::int32_t position = args.step->positions[row];
  if (position < 0) return;
  const std::int32_t slot = args.step->slots[row];
  const std::int32_t dim = args.kv.head_dim, kv_heads = args.kv.num_kv_heads;
  T* qkv = args.qkv.row(row);
  for (std::int32_t h = 0; h < args.num_q_heads; ++h) {
    T* q = qkv + std::int64_t{h} * dim;
    finish_head(args, q, std::int64_t{h} * dim, args.q_norm, true, position, x, q);
  }
  for (std::int32_t h = 0; h < kv_heads; ++h) {
    const std::int64_t k_column = std::int64_t{args.num_q_heads + h} * dim;
    const std::int64_t v_column = std::int64_t{args.num_q_heads + kv_heads + h} * dim;
    finish_head(args, qkv + k_column, k_column, args.k_norm, true, position, x,
                cache_row(args.kv, args.layer, slot, position, h, 0));
    finish_head(args, qkv + v_column, v_column, Norm<Cpu>{}, false, position, x,
                cache_row(args.kv, args.layer, slot, position, h, 1));
  }
}

}  // namespace

template <typename T>
void qkv_project(Context<Cpu>& ctx, const QkvArgs<T, Cpu>& args) {
  matmul<T, T>(ctx, args.x, *args.weight, args.qkv);
#pragma omp parallel
  {
    std::vector<float> scratch(static_cast<std::size_t>(args.kv.head_dim));
#pragma omp for
    for (std::int32_t row = 0; row < args.step->num_tokens; ++row)
      finish_row(args, row, scratch.data());
  }
}

template void qkv_project(Context<Cpu>&, const QkvArgs<float, Cpu>&);
template void qkv_project(Context<Cpu>&, const QkvArgs<BFloat16, Cpu>&);
template void qkv_project(Context<Cpu>&, const QkvArgs<Float16, Cpu>&);

}  // namespace tandem::kernels
