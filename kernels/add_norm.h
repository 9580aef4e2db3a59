// SPDX-License-Identifier: Apache-2.0
// What follows every row-parallel matmul: bias and scale, an optional norm of the branch, the
// residual add, and the norm that the next matmul reads. One seam, so that a device may fuse it
// with the matmul before it or with the all-reduce.
#pragma once

#include "kernels/linear.h"
#include "kernels/step_view.h"

namespace tandem::kernels {

/// RMS norm over the last axis: y = x / sqrt(mean(x^2) + eps) * weight, in float.
/// Zhang and Sennrich 2019, https://arxiv.org/abs/1910.07467. Norm weights are float on every
/// device (a stored `w` of Gemma is 1 + w here).
template <Device D>
struct Norm {
  const float* weight = nullptr;  ///< [hidden]; null: no norm, values pass through.
  float eps = 1e-5f;
};

/// A norm that its op left to the op that reads the normed rows, with what that one needs. The
/// caller hands the same object to both; host state of the order of enqueueing.
template <typename T, Device D>
struct DeferredNorm {
  TensorView<T, D> residual;           ///< [tokens, hidden] what the norm is of
  TensorView<T, D> normed;             ///< [tokens, hidden] where it would be
  Norm<D> norm;                        ///< Its weight is never null.
  const float* square_sums = nullptr;  ///< [tokens, parts] of the residual's rows
  int parts = 0;                       ///< 0: nothing is due, `normed` is there.
  /// `normed` holds residual * weight, and only the rows' factor is due: always in bfloat16, never
  /// in float16, which the product may exceed.
  bool weighted = false;
};

template <typename T, Device D>
struct AddNormArgs {
  TensorView<const T, D> branch;  ///< [tokens, hidden] summed over ranks; rows 0: no branch.
  const float* bias = nullptr;    ///< [hidden] added once, after the reduce; or null.
  Norm<D> post_norm;              ///< Norm of (branch + bias) before it is scaled and added.
  float scale = 1.0f;             ///< residual += scale * branch
  TensorView<T, D> residual;      ///< [tokens, hidden] in and out
  Norm<D> next_norm;              ///< null weight: `normed` is a copy of the new residual.
  TensorView<T, D> normed;        ///< [tokens, hidden] out; null data: not wanted.
  /// Null: `normed` is written. Else the device may leave the norm to the next op: read this.
  DeferredNorm<T, D>* deferred = nullptr;
};

/// residual += scale * post_norm(branch + bias); normed = next_norm(residual). Float inside, the
/// new residual is rounded to T before it is normed. Enqueued on the compute stream.
template <typename T>
void add_norm(Context<Cpu>& ctx, const AddNormArgs<T, Cpu>& args);
template <typename T>
void add_norm(Context<Cuda>& ctx, const AddNormArgs<T, Cuda>& args);

/// One rank alone: branch = x W^T, then `add_norm`. x `[tokens, K]`, W `[hidden, K]`;
/// `args.branch` is scratch that may be overwritten. A device may fuse the two.
template <typename T>
void project_add_norm(Context<Cpu>& ctx, TensorView<const T, Cpu> x, const LinearWeight<T, Cpu>& w,
                      TensorView<T, Cpu> scratch, const AddNormArgs<T, Cpu>& args);
template <typename T>
void project_add_norm(Context<Cuda>& ctx, TensorView<const T, Cuda> x,
                      const LinearWeight<T, Cuda>& w, TensorView<T, Cuda> scratch,
                      const AddNormArgs<T, Cuda>& args);

/// Writes `normed` if it is due yet, after which it is not.
template <typename T>
void apply_deferred(Context<Cuda>& ctx, DeferredNorm<T, Cuda>* deferred);

}  // namespace tandem::kernels
