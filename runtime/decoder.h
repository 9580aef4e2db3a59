// SPDX-License-Identifier: Apache-2.0
// The transformer decoder, written once over the device, as a walk over layers that are described
// by data. It calls fused seams only; between them travels (residual, normed). A step with prefill
// may run as two halves whose sums over ranks hide under each other's computation. Enqueues on the
// compute and comm streams, allocates nothing, and may be captured. Owns its activations.
#pragma once

#include "kernels/attend.h"
#include "kernels/gate_up_act.h"
#include "kernels/step.h"
#include "kvcache/kv_cache.h"
#include "parallel/overlap.h"
#include "parallel/parallel_linear.h"
#include "runtime/model.h"
#include "runtime/prefill_trial.h"
#include "runtime/step_cut.h"

namespace tandem::runtime {

template <typename T, Device D>
class Decoder {
 public:
  /// Activations for steps of up to `max_tokens` rows. `model` outlives the decoder.
  Decoder(const Model<T, D>& model, std::int64_t max_tokens);

  /// Runs all layers over the step's rows and returns final normed activations, valid until the
  /// next call: of the sampled rows `[num_samples, hidden]`, because after the last layer's
  /// attention only these go on; with `all_rows` of all `[num_tokens, hidden]`.
  TensorView<const T, D> forward(Context<D>& ctx, const parallel::TpGroup<D>& group,
                                 const StepRows<D>& rows, const kernels::SampleView<D>& samples,
                                 bool all_rows, const kernels::KvView<T, D>& kv);

  /// The norm of what `forward` returned that may be due yet; none with `all_rows`.
  kernels::DeferredNorm<T, D>& final_norm() { return deferred_; }

  /// Leaves out computation or communication from here on: results mean nothing then. Benches only.
  void set_trial(const PrefillTrial& trial) { trial_ = trial; }

  std::int64_t activation_bytes() const;

  /// What halves exchange, `[max_tokens, hidden]`, each the base of an allocation.
  const Buffer<T, D>& residual() const { return residual_; }
  const Buffer<T, D>& normed() const { return normed_; }

 private:
  using Layer = LayerWeights<T, D>;
  using Part = StepPart<D>;
  /// What goes from seam to seam: rows of the two, `[rows, hidden]`.
  struct Carried {
    TensorView<T, D> residual, normed;
  };
  /// A row-parallel matmul x W^T with the sum over ranks and what follows it.
  struct Joint {
    TensorView<const T, D> x;
    const kernels::LinearWeight<T, D>* weight = nullptr;
    TensorView<T, D> partial;
    kernels::AddNormArgs<T, D> args;
    Activity activity = Activity::kProject;  ///< What the product is recorded as.
    bool defers = true;                      ///< The next norm may be left to what reads it.
  };

  void run_whole(Context<D>& ctx, const parallel::TpGroup<D>& group, const Part& part,
                 const kernels::KvView<T, D>& kv);
  void run_halves(Context<D>& ctx, const parallel::TpGroup<D>& group,
                  const std::array<Part, 2>& halves, const kernels::KvView<T, D>& kv);
  TensorView<const T, D> finish(Context<D>& ctx, const parallel::TpGroup<D>& group,
                                const kernels::StepView<D>& step,
                                const kernels::SampleView<D>& samples, bool all_rows);

  kernels::EmbedArgs<T, D> embed_args(const Part& part) const;
  /// The matmul before attention, with the append to the cache, and attention.
  void attend(Context<D>& ctx, const parallel::TpGroup<D>& group, const Part& part,
              const kernels::KvView<T, D>& kv, std::int64_t layer);
  /// The MLP up to its activation.
  void activate(Context<D>& ctx, const Carried& rows, std::int64_t first, std::int64_t layer);
  Joint after_attention(const Carried& rows, std::int64_t first, std::int64_t layer) const;
  Joint after_mlp(const Carried& rows, std::int64_t first, std::int64_t layer) const;
  void project(Context<D>& ctx, const parallel::TpGroup<D>& group, const Joint& joint);

  static void sum_over_ranks(Context<D>& ctx, const parallel::TpGroup<D>& group,
                             const TensorView<T, D>& rows);

  static void add_norm(Context<D>& ctx, const kernels::AddNormArgs<T, D>& args);
  static void enter_layer(Context<D>& ctx, const parallel::TpGroup<D>& group, int layer);
  Carried carried(const Part& part) const;
  static kernels::AddNormArgs<T, D> first_norm(const Carried& rows, kernels::Norm<D> next);
  kernels::AddNormArgs<T, D> add_norm_args(const Carried& rows, const Buffer<float, D>& bias,
                                           const Buffer<float, D>& post_norm,
                                           const Buffer<float, D>& next_norm) const;
  /// Rows [first, first + rows) of an activation with `cols` columns.
  static TensorView<T, D> rows_of(const Buffer<T, D>& buffer, std::int64_t first, std::int64_t rows,
                                  std::int64_t cols);
  kernels::Norm<D> norm(const Buffer<float, D>& weight) const {
    return {weight.data(), model_.config.norm_eps};
  }
  const Buffer<float, D>& norm_before_layer(std::int64_t layer) const {
    return layer < model_.config.num_layers() ? model_.layers[layer].attention_norm
                                              : model_.final_norm;
  }
  static TensorView<const T, D> read_only(const TensorView<T, D>& view);

  const Model<T, D>& model_;
  std::int64_t q_cols_, qkv_cols_, intermediate_;
  PrefillTrial trial_;
  parallel::OverlapSchedule<D> schedule_;
  Buffer<T, D> residual_, normed_, partial_, qkv_, attended_, gate_up_, activated_;
  kernels::DeferredNorm<T, D> deferred_;  ///< Between two ops of `forward`.
  Buffer<float, D> squares_;              ///< [max_tokens, 2] of a joint norm of queries and keys
};

}  // namespace tandem::runtime
