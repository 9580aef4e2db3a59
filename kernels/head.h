// SPDX-License-Identifier: Apache-2.0
// The output head of one rank's vocabulary shard, on the rows that are sampled only.
#pragma once

#include "kernels/add_norm.h"
#include "kernels/sample.h"
#include "kernels/step.h"

namespace tandem::kernels {

template <typename T, Device D>
struct HeadArgs {
  SampleView<D> samples;                       ///< Null rows: `normed` holds just the samples.
  TensorView<const T, D> normed;               ///< [rows, hidden], final norm applied
  DeferredNorm<T, D>* deferred = nullptr;      ///< Which may be due yet; or null.
  const LinearWeight<T, D>* weight = nullptr;  ///< [vocab shard, hidden]
  float scale = 1.0f;                          ///< logits *= scale
  float softcap = 0.0f;                        ///< then cap * tanh(logit / cap); 0: none
  TensorView<T, D> gathered;                   ///< [num_samples, hidden] scratch
  TensorView<float, D> logits;                 ///< [num_samples, vocab shard] out
};

/// Enqueued on the compute stream.
template <typename T>
void head(Context<Cpu>& ctx, const HeadArgs<T, Cpu>& args);
template <typename T>
void head(Context<Cuda>& ctx, const HeadArgs<T, Cuda>& args);

/// `head`, and `best_of_shard` of its logits: `shard.logits` are `args.logits`, its samples the
/// step's. A device may look for the best while it makes the logits.
template <typename T>
void head_best(Context<Cpu>& ctx, const HeadArgs<T, Cpu>& args, const ShardArgs<Cpu>& shard,
               TokenKey* best);
template <typename T>
void head_best(Context<Cuda>& ctx, const HeadArgs<T, Cuda>& args, const ShardArgs<Cuda>& shard,
               TokenKey* best);

}  // namespace tandem::kernels
