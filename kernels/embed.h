// SPDX-License-Identifier: Apache-2.0
// Vocab-parallel embedding: each rank looks up the tokens of its shard and writes zeros for the
// others; the sum over ranks is the embedding.
#pragma once

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
};

/// Enqueued on the compute stream.
template <typename T>
void embed(Context<Cpu>& ctx, const EmbedArgs<T, Cpu>& args);
template <typename T>
void embed(Context<Cuda>& ctx, const EmbedArgs<T, Cuda>& args);

}  // namespace tandem::kernels
