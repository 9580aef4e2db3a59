// SPDX-License-Identifier: Apache-2.0
// Bodies of Decoder; included once per device by runtime/engine_<device>.cc.
#include <cmath>

#include "runtime/decoder.h"

namespace tandem::runtime {

template <typename T, Device D>
Decoder<T, D>::Decoder(const Model<T, D>& model, std::int64_t max_tokens)
    : model_(model),
      q_cols_(model.shard.q_heads().size() * model.config.head_dim),
      qkv_cols_(q_cols_ + 2 * model.shard.kv_heads().size() * model.config.head_dim),
      intermediate_(model.layers.front().down.cols()),
      residual_(max_tokens * model.config.hidden_size),
      normed_(max_tokens * model.config.hidden_size),
      partial_(max_tokens * model.config.hidden_size),
      qkv_(max_tokens * qkv_cols_),
      attended_(max_tokens * q_cols_),
      gate_up_(max_tokens * 2 * intermediate_),
      activated_(max_tokens * intermediate_),
      squares_(model.config.qk_norm_full ? 2 * max_tokens : 0) {}

template <typename T, Device D>
std::int64_t Decoder<T, D>::activation_bytes() const {
  return residual_.size_bytes() + normed_.size_bytes() + partial_.size_bytes() + qkv_.size_bytes() +
         attended_.size_bytes() + gate_up_.size_bytes() + activated_.size_bytes() +
         squares_.size_bytes();
}

template <typename T, Device D>
TensorView<const T, D> Decoder<T, D>::forward(Context<D>& ctx, const parallel::TpGroup<D>& group,
                                              const kernels::StepView<D>& step,
                                              const kernels::KvView<T, D>& kv) {
  embed(ctx, group, step);
  for (std::int64_t layer = 0; layer < model_.config.num_layers(); ++layer) {
    if (group.progress != nullptr) group.progress->set_layer(static_cast<int>(layer));
    if (ctx.recorder() != nullptr) ctx.recorder()->set_layer(static_cast<int>(layer));
    attention(ctx, group, step, kv, layer);
    mlp(ctx, group, step, layer);
  }
  if (group.progress != nullptr) group.progress->set_layer(-1);
  if (ctx.recorder() != nullptr) ctx.recorder()->set_layer(-1);
  return read_only(normed_.view(step.num_tokens, model_.config.hidden_size));
}

template <typename T, Device D>
kernels::AddNormArgs<T, D> Decoder<T, D>::add_norm_args(const kernels::StepView<D>& step,
                                                        const Buffer<float, D>& bias,
                                                        const Buffer<float, D>& post_norm,
                                                        const Buffer<float, D>& next_norm) const {
  kernels::AddNormArgs<T, D> args;
  args.bias = bias.data();
  args.post_norm = norm(post_norm);
  args.scale = model_.config.residual_scale;
  args.residual = residual_.view(step.num_tokens, model_.config.hidden_size);
  args.next_norm = norm(next_norm);
  args.normed = normed_.view(step.num_tokens, model_.config.hidden_size);
  return args;
}

template <typename T, Device D>
void Decoder<T, D>::embed(Context<D>& ctx, const parallel::TpGroup<D>& group,
                          const kernels::StepView<D>& step) {
  const parallel::Range vocab = model_.shard.vocab();
  kernels::EmbedArgs<T, D> args;
  args.step = &step;
  args.table = model_.embedding_table();
  args.vocab_begin = vocab.begin;
  args.vocab_end = vocab.end;
  args.scale = model_.config.embedding_scale;
  args.out = residual_.view(step.num_tokens, model_.config.hidden_size);
  parallel::embed_tokens(ctx, group, args);
  const auto first_norm = add_norm_args(step, {}, {}, norm_before_layer(0));
  const OpTimer timer(ctx, Activity::kAddNorm, [&] { return kernels::add_norm_work(first_norm); });
  kernels::add_norm(ctx, first_norm);
  deferred_ = {};
}

template <typename T, Device D>
void Decoder<T, D>::attention(Context<D>& ctx, const parallel::TpGroup<D>& group,
                              const kernels::StepView<D>& step, const kernels::KvView<T, D>& kv,
                              std::int64_t layer) {
  const ModelConfig& config = model_.config;
  const LayerConfig& layer_config = config.layers[layer];
  const Layer& weights = model_.layers[layer];
  kernels::QkvArgs<T, D> qkv;
  qkv.step = &step;
  qkv.x = read_only(normed_.view(step.num_tokens, config.hidden_size));
  qkv.deferred = &deferred_;
  qkv.weight = &weights.qkv;
  qkv.bias = weights.qkv_bias.data();
  qkv.q_norm = norm(weights.q_norm);
  qkv.k_norm = norm(weights.k_norm);
  if (layer_config.rope >= 0) qkv.rope = model_.ropes[layer_config.rope].view();
  qkv.num_q_heads = static_cast<std::int32_t>(model_.shard.q_heads().size());
  qkv.layer = static_cast<std::int32_t>(layer);
  qkv.kv = kv;
  qkv.qkv = qkv_.view(step.num_tokens, qkv_cols_);
  if (config.qk_norm_full)
    qkv.joint = {squares_.data(), static_cast<std::int32_t>(config.num_heads * config.head_dim),
                 static_cast<std::int32_t>(config.num_kv_heads * config.head_dim),
                 static_cast<std::int32_t>(model_.shard.first_own_kv_head())};
  OpTimer timer(ctx, Activity::kQkvProject,
                [&] { return kernels::matmul_work(step.num_tokens, weights.qkv); });
  parallel::project_qkv(ctx, group, qkv);

  kernels::AttendArgs<T, D> attend;
  attend.step = &step;
  attend.q = read_only(qkv.qkv);
  attend.kv = kv;
  attend.kv_head_of_q = model_.kv_head_of_q.data();
  attend.num_q_heads = qkv.num_q_heads;
  attend.layer = qkv.layer;
  attend.scale = config.attention_scale > 0 ? config.attention_scale
                                            : 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  attend.softcap = config.attention_softcap;
  attend.window = static_cast<std::int32_t>(layer_config.sliding_window);
  attend.out = attended_.view(step.num_tokens, q_cols_);
  timer.start(Activity::kAttend, [&] { return kernels::attend_work(attend); });
  kernels::attend(ctx, attend);
  timer.stop();

  auto add_norm =
      add_norm_args(step, weights.output_bias, weights.attention_post_norm, weights.mlp_norm);
  add_norm.deferred = &deferred_;
  parallel::project_reduce_add_norm(ctx, group, read_only(attend.out), weights.output,
                                    partial_.view(step.num_tokens, config.hidden_size), add_norm,
                                    Activity::kProject);
}

template <typename T, Device D>
void Decoder<T, D>::mlp(Context<D>& ctx, const parallel::TpGroup<D>& group,
                        const kernels::StepView<D>& step, std::int64_t layer) {
  const ModelConfig& config = model_.config;
  const Layer& weights = model_.layers[layer];
  kernels::GateUpArgs<T, D> gate_up;
  gate_up.x = read_only(normed_.view(step.num_tokens, config.hidden_size));
  gate_up.deferred = &deferred_;
  gate_up.weight = &weights.gate_up;
  gate_up.bias = weights.gate_up_bias.data();
  gate_up.activation = config.activation;
  gate_up.scratch = gate_up_.view(step.num_tokens, 2 * intermediate_);
  gate_up.out = activated_.view(step.num_tokens, intermediate_);
  OpTimer timer(ctx, Activity::kGateUpAct,
                [&] { return kernels::matmul_work(step.num_tokens, weights.gate_up); });
  kernels::gate_up_act(ctx, gate_up);
  timer.stop();

  auto add_norm =
      add_norm_args(step, weights.down_bias, weights.mlp_post_norm, norm_before_layer(layer + 1));
  // The rows after the last layer are read by an op that takes only some of them.
  if (layer + 1 < config.num_layers()) add_norm.deferred = &deferred_;
  parallel::project_reduce_add_norm(ctx, group, read_only(gate_up.out), weights.down,
                                    partial_.view(step.num_tokens, config.hidden_size), add_norm,
                                    Activity::kDown);
}

}  // namespace tandem::runtime
