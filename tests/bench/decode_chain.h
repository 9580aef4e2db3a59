// SPDX-License-Identifier: Apache-2.0
// A decode step on the data of `decode_shapes.h`: each op by itself, and all of them in order. The
// embedding and the all-reduces are left out: `project_add_norm` stands for both kinds of rank.
#pragma once

#include "tests/bench/decode_shapes.h"

namespace tandem::bench {

/// The ops of a step on one batch.
class Chain {
 public:
  Chain(Context<Cuda>& ctx, Model& model, Batch& batch) : ctx_(ctx), model_(model), batch_(batch) {}

  void qkv(int layer) {
    const ShardSizes& s = model_.sizes;
    kernels::QkvArgs<T, Cuda> args;
    args.step = &batch_.step;
    args.x = rows(batch_.normed, s.hidden);
    args.deferred = &deferred_;
    args.weight = &model_.layers[static_cast<std::size_t>(layer)].qkv;
    args.rope = {model_.rope.data(), model_.rope.data(), s.head_dim};
    args.num_q_heads = s.q_heads();
    args.layer = layer;
    args.kv = batch_.kv;
    args.qkv = batch_.qkv.view(batch_.rows, s.qkv_rows());
    kernels::qkv_project(ctx_, args);
  }
  void attend(int layer) {
    const ShardSizes& s = model_.sizes;
    kernels::AttendArgs<T, Cuda> args;
    args.step = &batch_.step;
    args.q = rows(batch_.qkv, s.qkv_rows());
    args.kv = batch_.kv;
    args.kv_head_of_q = batch_.map.data();
    args.num_q_heads = s.q_heads();
    args.layer = layer;
    args.scale = 0.0884f;
    args.out = batch_.attended.view(batch_.rows, s.q_heads() * s.head_dim);
    kernels::attend(ctx_, args);
  }
  void o(int layer) {
    const ShardSizes& s = model_.sizes;
    project(rows(batch_.attended, s.q_heads() * s.head_dim),
            model_.layers[static_cast<std::size_t>(layer)].o);
  }
  void gate_up(int layer) {
    const ShardSizes& s = model_.sizes;
    kernels::GateUpArgs<T, Cuda> args;
    args.x = rows(batch_.normed, s.hidden);
    args.deferred = &deferred_;
    args.weight = &model_.layers[static_cast<std::size_t>(layer)].gate_up;
    args.scratch = batch_.scratch.view(batch_.rows, 2 * s.intermediate());
    args.out = batch_.activated.view(batch_.rows, s.intermediate());
    kernels::gate_up_act(ctx_, args);
  }
  void down(int layer) {
    project(rows(batch_.activated, model_.sizes.intermediate()),
            model_.layers[static_cast<std::size_t>(layer)].down);
  }
  void head() { kernels::head(ctx_, head_args(nullptr)); }
  /// From logits that are there to tokens.
  void sample() {
    kernels::best_of_shard(ctx_, shard_args(), batch_.best.data());
    end();
  }
  void head_and_sample() {
    kernels::head_best(ctx_, head_args(&deferred_), shard_args(), batch_.best.data());
    end();
  }
  void all() {
    for (int layer = 0; layer < model_.sizes.layers; ++layer) {
      qkv(layer);
      attend(layer);
      o(layer);
      gate_up(layer);
      down(layer);
    }
    head_and_sample();
  }

 private:
  void end() {
    kernels::EndStepArgs<Cuda> args;
    args.samples = samples();
    args.positions = batch_.positions.data();
    args.best = batch_.best.data();
    args.tokens = batch_.tokens.data();
    args.tokens_stride = batch_.rows;
    args.turn = batch_.tokens.data() + 2 * batch_.rows;
    args.slots = slots();
    kernels::end_step(ctx_, args);
  }
  kernels::HeadArgs<T, Cuda> head_args(kernels::DeferredNorm<T, Cuda>* deferred) const {
    kernels::HeadArgs<T, Cuda> args;
    args.samples = {batch_.rows, nullptr, batch_.slots.data()};
    args.normed = rows(batch_.normed, model_.sizes.hidden);
    args.deferred = deferred;
    args.weight = &model_.head;
    args.logits = batch_.logits.view(batch_.rows, model_.sizes.vocab());
    return args;
  }
  kernels::ShardArgs<Cuda> shard_args() const {
    kernels::ShardArgs<Cuda> args;
    args.samples = samples();
    args.positions = batch_.positions.data();
    args.slots = slots();
    args.logits = batch_.logits.view(batch_.rows, model_.sizes.vocab());
    args.vocab_size = model_.sizes.vocab();
    return args;
  }
  kernels::SampleView<Cuda> samples() const {
    return {batch_.rows, batch_.sample_rows.data(), batch_.slots.data()};
  }
  kernels::SlotView<Cuda> slots() const {
    kernels::SlotView<Cuda> slots;
    slots.last_token = batch_.state.data();
    slots.length = batch_.state.data() + batch_.rows;
    slots.done = batch_.done.data();
    slots.params = batch_.params.data();
    return slots;
  }
  TensorView<const T, Cuda> rows(const Buffer<T, Cuda>& buffer, std::int64_t cols) const {
    return {buffer.data(), batch_.rows, cols};
  }
  void project(TensorView<const T, Cuda> x, const Weight& weight) {
    const std::int64_t hidden = model_.sizes.hidden;
    const auto scratch = batch_.scratch.view(batch_.rows, hidden);
    kernels::AddNormArgs<T, Cuda> args;
    args.branch = {scratch.data, scratch.rows, scratch.cols};
    args.scale = 1e-3f;
    args.residual = batch_.residual.view(batch_.rows, hidden);
    args.next_norm = {model_.norm.data(), 1e-5f};
    args.normed = batch_.normed.view(batch_.rows, hidden);
    args.deferred = &deferred_;
    kernels::project_add_norm(ctx_, x, weight, scratch, args);
  }

  Context<Cuda>& ctx_;
  Model& model_;
  Batch& batch_;
  kernels::DeferredNorm<T, Cuda> deferred_;
};

}  // namespace tandem::bench
