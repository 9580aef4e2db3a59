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

/// One norm of all query heads and one of all key heads, over the heads of all ranks (OLMo 2).
template <Device D>
struct JointNorm {
  float* squares = nullptr;  ///< [num_tokens, 2]: sums of squares of q and of k over all ranks.
                             ///< Null: every head is normed by itself.
  std::int32_t q_dims = 0, k_dims = 0;  ///< Of all ranks together.
  std::int32_t first_own_kv_head = 0;   ///< KV heads before it are summed up by another rank, which
                                        ///< holds them too.
};

template <typename T, Device D>
struct QkvArgs {
  const StepView<D>* step = nullptr;
  TensorView<const T, D> x;                ///< [num_tokens, hidden], normed
  DeferredNorm<T, D>* deferred = nullptr;  ///< The norm of x that may be due yet, or null.
  const LinearWeight<T, D>* weight =
      nullptr;                  ///< [(q_heads + 2 kv_heads) * head_dim, hidden]: q, k, v
  const float* bias = nullptr;  ///< [rows of weight] or null
  /// Before rotary; null: none. Weights are [head_dim], one for all heads, or with a joint norm
  /// [heads of this rank * head_dim].
  Norm<D> q_norm, k_norm;
  JointNorm<D> joint;
  RopeTable<D> rope;
  std::int32_t num_q_heads = 0;  ///< Of this rank; kv heads are in `kv`.
  std::int32_t layer = 0;
  KvView<T, D> kv;       ///< K and V of active rows are appended.
  TensorView<T, D> qkv;  ///< [num_tokens, rows of weight]: scratch, and on
                         ///< return its first q_heads * head_dim columns hold q.
};

/// Enqueued on the compute stream. Inert rows (position < 0) append nothing. Without joint norm.
template <typename T>
void qkv_project(Context<Cpu>& ctx, const QkvArgs<T, Cpu>& args);
template <typename T>
void qkv_project(Context<Cuda>& ctx, const QkvArgs<T, Cuda>& args);

/// The same with a joint norm, in two calls: the matmul and this rank's part of `joint.squares`,
/// then, once they are summed over the ranks, all that follows.
template <typename T>
void qkv_project_squares(Context<Cpu>& ctx, const QkvArgs<T, Cpu>& args);
template <typename T>
void qkv_project_squares(Context<Cuda>& ctx, const QkvArgs<T, Cuda>& args);
template <typename T>
void qkv_finish(Context<Cpu>& ctx, const QkvArgs<T, Cpu>& args);
template <typename T>
void qkv_finish(Context<Cuda>& ctx, const QkvArgs<T, Cuda>& args);

}  // namespace tandem::kernels
