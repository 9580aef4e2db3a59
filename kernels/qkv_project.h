// SPDX-License-Identifier: Apache-2.0
// The matmul in front of attention with all that follows it: bias, norm of queries and keys,
// rotary embedding, and the append of K and V to the paged cache.
#pragma once

#include "kernels/add_norm.h"
#include "kernels/linear.h"
#include "kernels/step_view.h"

namespace tandem::kernels {

/// Cosines and sines by position, made on the host once (`runtime/rope_table`).
/// Pairs are (i, i + rotary_dim / 2), the Hugging Face order. Su et al. 2021, arXiv 2104.09864.
template <Device D>
struct RopeTable {
  const float* cos = nullptr;  ///< [max_position, rotary_dim / 2]; null: no rotary embedding.
  const float* sin = nullptr;
  std::int32_t rotary_dim = 0;
};

template <typename T, Device D>
struct QkvArgs {
  const StepView<D>* step = nullptr;
  TensorView<const T, D> x;  ///< [num_tokens, hidden], normed
  const LinearWeight<T, D>* weight =
      nullptr;                  ///< [(q_heads + 2 kv_heads) * head_dim, hidden]: q, k, v
  const float* bias = nullptr;  ///< [rows of weight] or null
  Norm<D> q_norm, k_norm;       ///< Over head_dim, before rotary; null: none.
  RopeTable<D> rope;
  std::int32_t num_q_heads = 0;  ///< Of this rank; kv heads are in `kv`.
  std::int32_t layer = 0;
  KvView<T, D> kv;       ///< K and V of active rows are appended.
  TensorView<T, D> qkv;  ///< [num_tokens, rows of weight]: scratch, and on
                         ///< return its first q_heads * head_dim columns hold q.
};

/// Enqueued on the compute stream. Inert rows (position < 0) append nothing.
template <typename T>
void qkv_project(Context<Cpu>& ctx, const QkvArgs<T, Cpu>& args);
template <typename T>
void qkv_project(Context<Cuda>& ctx, const QkvArgs<T, Cuda>& args);

}  // namespace tandem::kernels
