// SPDX-License-Identifier: Apache-2.0
// Causal attention over the paged cache, for decode rows and prefill segments of one step. A row
// at position p sees the keys [max(0, p + 1 - window), p] of its sequence, all of which are in the
// cache already (`qkv_project` of the same step included).
#pragma once

#include "kernels/step_view.h"

namespace tandem::kernels {

/// Rows of a prompt that the tensor-core kernels of prefill take at once on CUDA.
inline constexpr int kPrefillTileTokens = 128;
/// KV lengths above which decode on CUDA splits rows over more blocks, as the step's bound says, so
/// that a long row does not hold up short ones. Blocks that find no share cost a batch of shorter
/// rows some percent: a captured step should have the least of these for its bound.
inline constexpr int kDecodeLongTokens = 2048, kDecodeVeryLongTokens = 8192;

template <typename T, Device D>
struct AttendArgs {
  const StepView<D>* step = nullptr;
  TensorView<const T, D> q;  ///< [num_tokens, >= q_heads * head_dim], strided
  KvView<T, D> kv;
  const std::int32_t* kv_head_of_q = nullptr;  ///< [num_q_heads] on device D, this rank's numbers
  std::int32_t num_q_heads = 0;
  std::int32_t layer = 0;
  float scale = 1.0f;       ///< Of q.k
  float softcap = 0.0f;     ///< s -> cap * tanh(s / cap); 0: none
  std::int32_t window = 0;  ///< 0: all keys
  TensorView<T, D> out;     ///< [num_tokens, q_heads * head_dim]
};

/// Softmax in float. Inert rows get zeros. Enqueued on the compute stream. FlashAttention's online
/// softmax (Dao et al. 2022, arXiv 2205.14135) on CUDA.
template <typename T>
void attend(Context<Cpu>& ctx, const AttendArgs<T, Cpu>& args);
template <typename T>
void attend(Context<Cuda>& ctx, const AttendArgs<T, Cuda>& args);

}  // namespace tandem::kernels
