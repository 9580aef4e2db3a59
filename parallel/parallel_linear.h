// SPDX-License-Identifier: Apache-2.0
// The seams that talk to other ranks: row-parallel projection, vocab-parallel embedding, and a norm
// of queries and keys that spans all heads.
// Megatron-LM's split (Shoeybi et al. 2019, arXiv 1909.08053): columns first, then rows, one sum
// after each pair. A group of one rank takes the fused path without any communication.
#pragma once

#include "kernels/device/op_timer.h"
#include "kernels/embed.h"
#include "kernels/op_work.h"
#include "kernels/qkv_project.h"
#include "parallel/tp_group.h"

namespace tandem::parallel {

/// branch = sum over ranks of x W^T, then `add_norm`. x `[tokens, K of this rank]`, W `[hidden, K
/// of this rank]`, `partial` `[tokens, hidden]` scratch; `args.branch` is set here. The product is
/// recorded as `activity`.
template <typename T, Device D>
void project_reduce_add_norm(Context<D>& ctx, const TpGroup<D>& group, TensorView<const T, D> x,
                             const kernels::LinearWeight<T, D>& weight, TensorView<T, D> partial,
                             kernels::AddNormArgs<T, D> args,
                             Activity activity = Activity::kProject) {
  args.branch.data = partial.data;
  args.branch.rows = partial.rows;
  args.branch.cols = partial.cols;
  args.branch.stride = partial.stride;
  OpTimer timer(ctx, activity, [&] { return kernels::matmul_work(x.rows, weight); });
  if (group.size == 1) {
    kernels::project_add_norm(ctx, x, weight, partial, args);
    return;
  }
  if (group.communicator->project_reduce_add_norm(ctx, x, weight, partial, args, activity)) return;
  kernels::matmul<T, T>(ctx, x, weight, partial);
  timer.stop();
  group.communicator->reduce_add_norm(ctx, partial, args);
}

/// `qkv_project`; a joint norm of queries and keys takes one small all-reduce of sums of squares.
template <typename T, Device D>
void project_qkv(Context<D>& ctx, const TpGroup<D>& group, const kernels::QkvArgs<T, D>& args) {
  if (args.joint.squares == nullptr) {
    kernels::qkv_project(ctx, args);
    return;
  }
  kernels::qkv_project_squares(ctx, args);
  if (group.size > 1)
    group.communicator->all_reduce_sum(ctx, Span<float, D>{args.joint.squares, 2 * args.x.rows});
  kernels::qkv_finish(ctx, args);
}

/// The embedding of every row, summed over the shards of the vocabulary, and its norm. `partial`
/// `[tokens, hidden]` is scratch.
template <typename T, Device D>
void embed_tokens(Context<D>& ctx, const TpGroup<D>& group, kernels::EmbedArgs<T, D> args,
                  TensorView<T, D> partial) {
  kernels::AddNormArgs<T, D> sum;
  sum.residual = args.out;
  sum.next_norm = args.norm;
  sum.normed = args.normed;
  OpTimer timer(ctx, Activity::kEmbed,
                [&] { return kernels::rows_work<T>(args.out.rows, args.out.cols, 3); });
  if (group.size > 1) {  // a branch of a residual of zeros: sum and norm are one kernel of decode
    sum.branch = {partial.data, partial.rows, partial.cols};
    args.zeros = args.out;
    args.out = partial;
    args.normed = {};
  }
  kernels::embed(ctx, args);
  timer.stop();
  if (group.size > 1) group.communicator->reduce_add_norm(ctx, partial, sum);
}

}  // namespace tandem::parallel
