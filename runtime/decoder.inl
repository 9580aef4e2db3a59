// SPDX-License-Identifier: Apache-2.0
// Bodies of Decoder; included once per device by runtime/engine_<device>.cc.
#include <cmath>

#include "kernels/gather_rows.h"
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
                                              const StepRows<D>& rows,
                                              const kernels::SampleView<D>& samples, bool all_rows,
                                              const kernels::KvView<T, D>& kv) {
  deferred_ = {};
  if (rows.overlapped)
    run_halves(ctx, group, rows.halves, kv);
  else
    run_whole(ctx, group, rows.whole, kv);
  return finish(ctx, group, rows.whole.step, samples, all_rows);
}

/// Up to the last layer's attention.
template <typename T, Device D>
void Decoder<T, D>::run_whole(Context<D>& ctx, const parallel::TpGroup<D>& group, const Part& part,
                              const kernels::KvView<T, D>& kv) {
  const Carried rows = carried(part);
  kernels::EmbedArgs<T, D> embed = embed_args(part);
  embed.norm = norm(norm_before_layer(0));
  embed.normed = rows.normed;
  if (trial_.compute && trial_.communicate)
    parallel::embed_tokens(ctx, group, embed,
                           rows_of(partial_, part.first, embed.out.rows, embed.out.cols));
  else if (trial_.compute)
    kernels::embed(ctx, embed);
  else
    sum_over_ranks(ctx, group, rows.residual);
  const std::int64_t last = model_.config.num_layers() - 1;
  for (std::int64_t layer = 0; layer <= last; ++layer) {
    enter_layer(ctx, group, static_cast<int>(layer));
    attend(ctx, group, part, kv, layer);
    if (layer == last) break;
    project(ctx, group, after_attention(rows, part.first, layer));
    activate(ctx, rows, part.first, layer);
    project(ctx, group, after_mlp(rows, part.first, layer));
  }
}

/// The same as stages of the overlap schedule: stage 0 is the embedding, stages 2 l + 1 and 2 l + 2
/// are attention and MLP of layer l; the last layer's attention ends the last stage.
template <typename T, Device D>
void Decoder<T, D>::run_halves(Context<D>& ctx, const parallel::TpGroup<D>& group,
                               const std::array<Part, 2>& halves, const kernels::KvView<T, D>& kv) {
  const std::int64_t last = model_.config.num_layers() - 1;
  const int stages = 1 + 2 * static_cast<int>(last);
  const auto part = [&](int which) -> const Part& {
    return halves[static_cast<std::size_t>(which)];
  };
  const auto joint = [&](int stage, int which) {
    const std::int64_t layer = (stage - 1) / 2, first = part(which).first;
    const Carried rows = carried(part(which));
    return stage % 2 == 1 ? after_attention(rows, first, layer) : after_mlp(rows, first, layer);
  };
  const auto compute = [&](int stage, int which) {
    const std::int64_t layer = (stage - 1) / 2;
    enter_layer(ctx, group, static_cast<int>(layer));
    if (stage == 0) {
      const OpTimer timer(ctx, Activity::kEmbed, [&] {
        return kernels::rows_work<T>(part(which).step.num_tokens, model_.config.hidden_size, 2);
      });
      if (trial_.compute) kernels::embed(ctx, embed_args(part(which)));
      return;
    }
    if (stage % 2 == 1)
      attend(ctx, group, part(which), kv, layer);
    else
      activate(ctx, carried(part(which)), part(which).first, layer);
    const Joint ending = joint(stage, which);
    const OpTimer timer(ctx, ending.activity,
                        [&] { return kernels::matmul_work(ending.x.rows, *ending.weight); });
    if (trial_.compute) kernels::matmul<T, T>(ctx, ending.x, *ending.weight, ending.partial);
  };
  // The residual of rows that are dealt to the ranks is put together for the last layer.
  const auto dealt = [&](int stage, int which) {
    return stage > 0 && group.rows != nullptr && group.rows->takes(joint(stage, which).args);
  };
  const auto reduce = [&](int stage, int which) {
    if (dealt(stage, which)) {
      const Joint ending = joint(stage, which);
      return group.rows->reduce_add_norm(
          ctx, ending.partial, ending.args,
          {trial_.compute, trial_.communicate, /*whole_residual=*/stage == stages - 1});
    }
    if (!trial_.communicate) return;
    const TensorView<T, D> sums =
        stage == 0 ? carried(part(which)).residual : joint(stage, which).partial;
    group.communicator->all_reduce_sum_beside(ctx, Span<T, D>{sums.data, sums.rows * sums.cols});
  };
  const auto finish_stage = [&](int stage, int which) {
    if (trial_.compute && !dealt(stage, which)) {
      const Carried rows = carried(part(which));
      add_norm(ctx, stage == 0 ? first_norm(rows, norm(norm_before_layer(0)))
                               : joint(stage, which).args);
    }
    if (stage == stages - 1) attend(ctx, group, part(which), kv, last);
  };
  group.communicator->share_device(ctx, group.rows == nullptr);
  schedule_.run(ctx, stages, compute, reduce, finish_stage);
  group.communicator->share_device(ctx, false);
}

/// What follows the last layer's attention, for the rows that are wanted.
template <typename T, Device D>
TensorView<const T, D> Decoder<T, D>::finish(Context<D>& ctx, const parallel::TpGroup<D>& group,
                                             const kernels::StepView<D>& step,
                                             const kernels::SampleView<D>& samples, bool all_rows) {
  const std::int64_t layer = model_.config.num_layers() - 1, hidden = model_.config.hidden_size;
  const std::int64_t count = all_rows ? step.num_tokens : samples.num_samples;
  Carried rows{residual_.view(count, hidden), normed_.view(count, hidden)};
  if (count > 0) {
    Joint attention = after_attention(rows, 0, layer);
    if (count < step.num_tokens && trial_.compute) {
      // The buffers of `qkv` and `normed` are free by now; residual and normed change places.
      rows = {normed_.view(count, hidden), residual_.view(count, hidden)};
      const TensorView<T, D> picked = qkv_.view(count, q_cols_);
      kernels::gather_rows<T>(
          ctx, {samples.rows, read_only(attended_.view(step.num_tokens, q_cols_)), picked});
      kernels::gather_rows<T>(
          ctx, {samples.rows, read_only(residual_.view(step.num_tokens, hidden)), rows.residual});
      attention = after_attention(rows, 0, layer);
      attention.x = read_only(picked);
    }
    project(ctx, group, attention);
    activate(ctx, rows, 0, layer);
    Joint mlp = after_mlp(rows, 0, layer);
    mlp.defers = !all_rows;  // of all rows some are read, and more than once
    project(ctx, group, mlp);
  }
  enter_layer(ctx, group, -1);
  return read_only(rows.normed);
}

template <typename T, Device D>
void Decoder<T, D>::project(Context<D>& ctx, const parallel::TpGroup<D>& group,
                            const Joint& joint) {
  if (trial_.compute && trial_.communicate) {
    kernels::AddNormArgs<T, D> args = joint.args;
    deferred_ = {};
    if (joint.defers) args.deferred = &deferred_;
    parallel::project_reduce_add_norm(ctx, group, joint.x, *joint.weight, joint.partial, args,
                                      joint.activity);
    return;
  }
  if (trial_.compute) {
    kernels::matmul<T, T>(ctx, joint.x, *joint.weight, joint.partial);
    add_norm(ctx, joint.args);
  }
  if (trial_.communicate) sum_over_ranks(ctx, group, joint.partial);
}

template <typename T, Device D>
void Decoder<T, D>::sum_over_ranks(Context<D>& ctx, const parallel::TpGroup<D>& group,
                                   const TensorView<T, D>& rows) {
  if (group.size > 1)
    group.communicator->all_reduce_sum(ctx, Span<T, D>{rows.data, rows.rows * rows.cols});
}

template <typename T, Device D>
kernels::EmbedArgs<T, D> Decoder<T, D>::embed_args(const Part& part) const {
  const parallel::Range vocab = model_.shard.vocab();
  kernels::EmbedArgs<T, D> args;
  args.step = &part.step;
  args.table = model_.embedding_table();
  args.head = &model_.head;
  args.vocab_begin = vocab.begin;
  args.vocab_end = vocab.end;
  args.scale = model_.config.embedding_scale;
  args.out = carried(part).residual;
  return args;
}

template <typename T, Device D>
void Decoder<T, D>::attend(Context<D>& ctx, const parallel::TpGroup<D>& group, const Part& part,
                           const kernels::KvView<T, D>& kv, std::int64_t layer) {
  if (!trial_.compute) return;
  const ModelConfig& config = model_.config;
  const LayerConfig& layer_config = config.layers[layer];
  const Layer& weights = model_.layers[layer];
  const std::int64_t count = part.step.num_tokens;
  kernels::QkvArgs<T, D> qkv;
  qkv.step = &part.step;
  qkv.x = read_only(carried(part).normed);
  qkv.deferred = &deferred_;
  qkv.weight = &weights.qkv;
  qkv.bias = weights.qkv_bias.data();
  qkv.q_norm = norm(weights.q_norm);
  qkv.k_norm = norm(weights.k_norm);
  if (layer_config.rope >= 0) qkv.rope = model_.ropes[layer_config.rope].view();
  qkv.num_q_heads = static_cast<std::int32_t>(model_.shard.q_heads().size());
  qkv.layer = static_cast<std::int32_t>(layer);
  qkv.kv = kv;
  qkv.qkv = rows_of(qkv_, part.first, count, qkv_cols_);
  if (config.qk_norm_full)
    qkv.joint = {squares_.data(), static_cast<std::int32_t>(config.num_heads * config.head_dim),
                 static_cast<std::int32_t>(config.num_kv_heads * config.head_dim),
                 static_cast<std::int32_t>(model_.shard.first_own_kv_head())};
  OpTimer timer(ctx, Activity::kQkvProject,
                [&] { return kernels::matmul_work(count, weights.qkv); });
  parallel::project_qkv(ctx, group, qkv);

  kernels::AttendArgs<T, D> attend;
  attend.step = &part.step;
  attend.q = read_only(qkv.qkv);
  attend.kv = kv;
  attend.kv_head_of_q = model_.kv_head_of_q.data();
  attend.num_q_heads = qkv.num_q_heads;
  attend.layer = qkv.layer;
  attend.scale = config.attention_scale > 0 ? config.attention_scale
                                            : 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  attend.softcap = config.attention_softcap;
  attend.window = static_cast<std::int32_t>(layer_config.sliding_window);
  attend.out = rows_of(attended_, part.first, count, q_cols_);
  timer.start(Activity::kAttend, [&] { return kernels::attend_work(attend); });
  kernels::attend(ctx, attend);
}

template <typename T, Device D>
void Decoder<T, D>::activate(Context<D>& ctx, const Carried& rows, std::int64_t first,
                             std::int64_t layer) {
  if (!trial_.compute) return;
  const Layer& weights = model_.layers[layer];
  const std::int64_t count = rows.normed.rows;
  kernels::GateUpArgs<T, D> gate_up;
  gate_up.x = read_only(rows.normed);
  gate_up.deferred = &deferred_;
  gate_up.weight = &weights.gate_up;
  gate_up.bias = weights.gate_up_bias.data();
  gate_up.activation = model_.config.activation;
  gate_up.scratch = rows_of(gate_up_, first, count, 2 * intermediate_);
  gate_up.out = rows_of(activated_, first, count, intermediate_);
  const OpTimer timer(ctx, Activity::kGateUpAct,
                      [&] { return kernels::matmul_work(count, weights.gate_up); });
  kernels::gate_up_act(ctx, gate_up);
}

template <typename T, Device D>
typename Decoder<T, D>::Joint Decoder<T, D>::after_attention(const Carried& rows,
                                                             std::int64_t first,
                                                             std::int64_t layer) const {
  const Layer& weights = model_.layers[layer];
  Joint joint;
  joint.x = read_only(rows_of(attended_, first, rows.residual.rows, q_cols_));
  joint.weight = &weights.output;
  joint.partial = rows_of(partial_, first, rows.residual.rows, model_.config.hidden_size);
  joint.args =
      add_norm_args(rows, weights.output_bias, weights.attention_post_norm, weights.mlp_norm);
  joint.args.branch = read_only(joint.partial);
  return joint;
}

template <typename T, Device D>
typename Decoder<T, D>::Joint Decoder<T, D>::after_mlp(const Carried& rows, std::int64_t first,
                                                       std::int64_t layer) const {
  const Layer& weights = model_.layers[layer];
  Joint joint;
  joint.x = read_only(rows_of(activated_, first, rows.residual.rows, intermediate_));
  joint.weight = &weights.down;
  joint.activity = Activity::kDown;
  joint.partial = rows_of(partial_, first, rows.residual.rows, model_.config.hidden_size);
  joint.args =
      add_norm_args(rows, weights.down_bias, weights.mlp_post_norm, norm_before_layer(layer + 1));
  joint.args.branch = read_only(joint.partial);
  return joint;
}

template <typename T, Device D>
void Decoder<T, D>::add_norm(Context<D>& ctx, const kernels::AddNormArgs<T, D>& args) {
  const OpTimer timer(ctx, Activity::kAddNorm, [&] { return kernels::add_norm_work(args); });
  kernels::add_norm(ctx, args);
}

template <typename T, Device D>
void Decoder<T, D>::enter_layer(Context<D>& ctx, const parallel::TpGroup<D>& group, int layer) {
  if (group.progress != nullptr) group.progress->set_layer(layer);
  if (ctx.recorder() != nullptr) ctx.recorder()->set_layer(layer);
}

template <typename T, Device D>
typename Decoder<T, D>::Carried Decoder<T, D>::carried(const Part& part) const {
  const std::int64_t count = part.step.num_tokens, hidden = model_.config.hidden_size;
  return {rows_of(residual_, part.first, count, hidden),
          rows_of(normed_, part.first, count, hidden)};
}

template <typename T, Device D>
kernels::AddNormArgs<T, D> Decoder<T, D>::first_norm(const Carried& rows, kernels::Norm<D> next) {
  kernels::AddNormArgs<T, D> args;
  args.residual = rows.residual;
  args.next_norm = next;
  args.normed = rows.normed;
  return args;
}

template <typename T, Device D>
kernels::AddNormArgs<T, D> Decoder<T, D>::add_norm_args(const Carried& rows,
                                                        const Buffer<float, D>& bias,
                                                        const Buffer<float, D>& post_norm,
                                                        const Buffer<float, D>& next_norm) const {
  kernels::AddNormArgs<T, D> args = first_norm(rows, norm(next_norm));
  args.bias = bias.data();
  args.post_norm = norm(post_norm);
  args.scale = model_.config.residual_scale;
  return args;
}

template <typename T, Device D>
TensorView<T, D> Decoder<T, D>::rows_of(const Buffer<T, D>& buffer, std::int64_t first,
                                        std::int64_t rows, std::int64_t cols) {
  return buffer.view(first + rows, cols).slice_rows(first, rows);
}

template <typename T, Device D>
TensorView<const T, D> Decoder<T, D>::read_only(const TensorView<T, D>& view) {
  TensorView<const T, D> result(view.data, view.rows, view.cols);
  result.stride = view.stride;
  return result;
}

}  // namespace tandem::runtime
