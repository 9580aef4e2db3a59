// SPDX-License-Identifier: Apache-2.0
// Vocab-parallel embedding: each rank looks up the tokens of its shard and writes zeros for the
// others; the sum over ranks is the embedding. A rank that has the whole vocabulary norms it too.
#pragma once

#include "kernels/add_norm.h"
#include "kernels/linear.h"
#include "kernels/step_view.h"

namespace tandem::kernels {

template <typename T, Device D>
struct EmbedArgs {
  const StepView<D>* step = nullptr;
  const T* table = nullptr;  ///< [vocab_end - vocab_begin, hidden], row-major
  std::int64_t vocab_begin = 0, vocab_end = 0;
  float scale = 1.0f;                        ///< Applied in float, then rounded once to T.
  TensorView<T, D> out;                      ///< [num_tokens, hidden]
  const LinearWeight<T, D>* head = nullptr;  ///< Holds the table where `table` is null (CPU only).
  Norm<D> norm;                              ///< Of the rounded rows, as in `add_norm`.
  TensorView<T, D> normed;                   ///< [num_tokens, hidden] out; null data: not wanted.
  TensorView<T, D> zeros;  ///< [num_tokens, hidden] zeroed, for a sum to be added to; or null data.
};

/// Enqueued on the compute stream.
template <typename T>
void embed(Context<Cpu>& ctx, const EmbedArgs<T, Cpu>& args);
template <typename T>
void embed(Context<Cuda>& ctx, const EmbedArgs<T, Cuda>& args);

}  // namespace tandem::kernels
