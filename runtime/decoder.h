// SPDX-License-Identifier: Apache-2.0
// The transformer decoder, written once over the device, as a walk over layers that are described
// by data. It calls fused seams only; between them travels (residual, normed). Enqueues on the
// compute stream, allocates nothing, and may be captured. Owns its activations.
#pragma once

#include "kernels/attend.h"
#include "kernels/gate_up_act.h"
#include "kvcache/kv_cache.h"
#include "parallel/parallel_linear.h"
#include "runtime/model.h"

namespace tandem::runtime {

template <typename T, Device D>
class Decoder {
 public:
  /// Activations for steps of up to `max_tokens` rows. `model` outlives the decoder.
  Decoder(const Model<T, D>& model, std::int64_t max_tokens);

  /// Runs all layers over the step's rows and returns the final normed activations
  /// `[num_tokens, hidden]`, valid until the next call.
  TensorView<const T, D> forward(Context<D>& ctx, const parallel::TpGroup<D>& group,
                                 const kernels::StepView<D>& step, const kernels::KvView<T, D>& kv);

  std::int64_t activation_bytes() const;

 private:
  using Layer = LayerWeights<T, D>;

  void embed(Context<D>& ctx, const parallel::TpGroup<D>& group, const kernels::StepView<D>& step);
  void attention(Context<D>& ctx, const parallel::TpGroup<D>& group,
                 const kernels::StepView<D>& step, const kernels::KvView<T, D>& kv,
                 std::int64_t layer);
  void mlp(Context<D>& ctx, const parallel::TpGroup<D>& group, const kernels::StepView<D>& step,
           std::int64_t layer);
  /// What follows a row-parallel matmul of this step.
  kernels::AddNormArgs<T, D> add_norm_args(const kernels::StepView<D>& step,
                                           const Buffer<float, D>& bias,
                                           const Buffer<float, D>& post_norm,
                                           const Buffer<float, D>& next_norm) const;
  kernels::Norm<D> norm(const Buffer<float, D>& weight) const {
    return {weight.data(), model_.config.norm_eps};
  }
  const Buffer<float, D>& norm_before_layer(std::int64_t layer) const {
    return layer < model_.config.num_layers() ? model_.layers[layer].attention_norm
                                              : model_.final_norm;
  }
  static TensorView<const T, D> read_only(const TensorView<T, D>& view) {
    TensorView<const T, D> result(view.data, view.rows, view.cols);
    result.stride = view.stride;
    return result;
  }

  const Model<T, D>& model_;
  std::int64_t q_cols_, qkv_cols_, intermediate_;
  Buffer<T, D> residual_, normed_, partial_, qkv_, attended_, gate_up_, activated_;
  kernels::DeferredNorm<T, D> deferred_;  ///< Between two ops of `forward`.
  Buffer<float, D> squares_;              ///< [max_tokens, 2] of a joint norm of queries and keys
};

}  // namespace tandem::runtime
