// SPDX-License-Identifier: Apache-2.0
#include "kernels/qkv_project.h"

#include <cmath>
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

/// Column `column` of the matmul's result, with its bias.
template <typename T>
float biased(const QkvArgs<T, Cpu>& args, const T* row, std::int64_t column) {
  return static_cast<float>(row[column]) + (args.bias == nullptr ? 0.0f : args.bias[column]);
}

template <typename T>
float sum_of_squares(const QkvArgs<T, Cpu>& args, const T* row, std::int64_t begin,
                     std::int64_t end) {
  float sum = 0.0f;
  for (std::int64_t i = begin; i < end; ++i) {
    const float x = biased(args, row, i);
    sum += x * x;
  }
  return sum;
}

/// How the heads of one kind are normed.
struct HeadNorm {
  Norm<Cpu> norm;
  float inverse = 0;  ///< Of a joint norm.
};

template <typename T>
HeadNorm head_norm(const QkvArgs<T, Cpu>& args, std::int32_t row, const Norm<Cpu>& norm, int kind) {
  if (args.joint.squares == nullptr) return {norm, 0.0f};
  const std::int32_t dims = kind == 0 ? args.joint.q_dims : args.joint.k_dims;
  const float square = args.joint.squares[2 * row + kind];
  return {norm, 1.0f / std::sqrt(square / static_cast<float>(dims) + norm.eps)};
}

/// Bias, norm and rotary embedding of head `head` of its kind, whose first column is `column`;
/// `x` is scratch of head_dim floats.
template <typename T>
void finish_head(const QkvArgs<T, Cpu>& args, const T* row, std::int64_t column, std::int32_t head,
                 const HeadNorm& norm, std::int32_t position, float* x, T* out) {
  const std::int32_t dim = args.kv.head_dim;
  for (std::int32_t i = 0; i < dim; ++i) x[i] = biased(args, row, column + i);
  if (norm.norm.weight != nullptr) {
    const bool joint = args.joint.squares != nullptr;
    const float inverse = joint ? norm.inverse : cpu::inverse_rms(x, dim, norm.norm.eps);
    const float* weight = norm.norm.weight + (joint ? std::int64_t{head} * dim : 0);
    for (std::int32_t i = 0; i < dim; ++i) x[i] *= inverse * weight[i];
  }
  if (args.rope.cos != nullptr) rotate(args.rope, position, x);
  for (std::int32_t i = 0; i < dim; ++i) out[i] = T(x[i]);
}

template <typename T>
void finish_row(const QkvArgs<T, Cpu>& args, std::int32_t row, float* x) {
  const std::int32_t position = args.step->positions[row];
  if (position < 0) return;
  const std::int32_t slot = args.step->slots[row];
  const std::int32_t dim = args.kv.head_dim, kv_heads = args.kv.num_kv_heads;
  T* qkv = args.qkv.row(row);
  const HeadNorm q_norm = head_norm(args, row, args.q_norm, 0);
  for (std::int32_t h = 0; h < args.num_q_heads; ++h) {
    const std::int64_t column = std::int64_t{h} * dim;
    finish_head(args, qkv, column, h, q_norm, position, x, qkv + column);
  }
  const HeadNorm k_norm = head_norm(args, row, args.k_norm, 1);
  for (std::int32_t h = 0; h < kv_heads; ++h) {
    const std::int64_t k_column = std::int64_t{args.num_q_heads + h} * dim;
    finish_head(args, qkv, k_column, h, k_norm, position, x,
                cache_row(args.kv, args.layer, slot, position, h, 0));
    const std::int64_t v_column = std::int64_t{args.num_q_heads + kv_heads + h} * dim;
    T* value = cache_row(args.kv, args.layer, slot, position, h, 1);
    for (std::int32_t i = 0; i < dim; ++i) value[i] = T(biased(args, qkv, v_column + i));
  }
}

}  // namespace

template <typename T>
void qkv_project(Context<Cpu>& ctx, const QkvArgs<T, Cpu>& args) {
  matmul<T, T>(ctx, args.x, *args.weight, args.qkv);
  qkv_finish(ctx, args);
}

template <typename T>
void qkv_project_squares(Context<Cpu>& ctx, const QkvArgs<T, Cpu>& args) {
  matmul<T, T>(ctx, args.x, *args.weight, args.qkv);
  const std::int64_t dim = args.kv.head_dim, q_end = args.num_q_heads * dim;
  for (std::int32_t row = 0; row < args.step->num_tokens; ++row) {
    const T* qkv = args.qkv.row(row);
    args.joint.squares[2 * row] = sum_of_squares(args, qkv, 0, q_end);
    args.joint.squares[2 * row + 1] = sum_of_squares(
        args, qkv, q_end + args.joint.first_own_kv_head * dim, q_end + args.kv.num_kv_heads * dim);
  }
}

template <typename T>
void qkv_finish(Context<Cpu>&, const QkvArgs<T, Cpu>& args) {
#pragma omp parallel if (args.step->num_tokens > 1)
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
template void qkv_project_squares(Context<Cpu>&, const QkvArgs<float, Cpu>&);
template void qkv_project_squares(Context<Cpu>&, const QkvArgs<BFloat16, Cpu>&);
template void qkv_project_squares(Context<Cpu>&, const QkvArgs<Float16, Cpu>&);
template void qkv_finish(Context<Cpu>&, const QkvArgs<float, Cpu>&);
template void qkv_finish(Context<Cpu>&, const QkvArgs<BFloat16, Cpu>&);
template void qkv_finish(Context<Cpu>&, const QkvArgs<Float16, Cpu>&);

}  // namespace tandem::kernels
