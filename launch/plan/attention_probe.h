// SPDX-License-Identifier: Apache-2.0
// Data for timing attention alone: a filled paged cache of one step's sequences and a step of
// decode rows or one prompt. Device-generic; owns its memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attend.h"
#include "kernels/device/buffer.h"
#include "kernels/device/dtype.h"

namespace tandem::launch {

struct AttentionShape {
  int q_heads = 0, kv_heads = 0, head_dim = 0;
};

/// So many sequences with so many keys each.
struct DecodePoint {
  int rows = 1, context = 1;
};

template <Device D>
class AttentionProbe {
 public:
  /// Layers are repeated until their keys and values take `pool_bytes`, but at most so often: a
  /// step finds them in memory, because weights have pushed them out of the caches.
  AttentionProbe(Context<D>& ctx, const AttentionShape& shape, std::int64_t pool_bytes,
                 int most_layers)
      : ctx_(ctx), shape_(shape), pool_bytes_(pool_bytes), most_layers_(most_layers) {}

  void prepare_decode(const DecodePoint& point) {
    std::vector<std::int32_t> positions(static_cast<std::size_t>(point.rows), point.context - 1);
    std::vector<std::int32_t> slots(positions.size());
    for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<std::int32_t>(i);
    kv_tokens_ = pairs_ = double(point.rows) * point.context;
    fill(point.rows, point.context, positions, slots);
    step_.num_decode = point.rows;
  }
  void prepare_prefill(int tokens) {
    std::vector<std::int32_t> positions(static_cast<std::size_t>(tokens));
    for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int32_t>(i);
    kv_tokens_ = tokens;
    pairs_ = double(tokens) * (tokens + 1) / 2;
    fill(1, tokens, positions, std::vector<std::int32_t>(positions.size(), 0));
    segments_ = upload(std::vector<std::int32_t>{0, tokens});
    step_.num_segments = 1;
    step_.max_segment_tokens = tokens;
    step_.segment_begin = segments_.data();
  }

  int layers() const { return layers_; }
  /// Of one layer.
  double kv_bytes() const { return kv_tokens_ * 2 * shape_.kv_heads * shape_.head_dim * 2; }
  double flops() const { return pairs_ * 4 * shape_.q_heads * shape_.head_dim; }

  /// Every layer's attention, one after the other.
  void run() {
    kernels::AttendArgs<T, D> args;
    args.step = &step_;
    args.q = TensorView<const T, D>(q_.data(), step_.num_tokens, q_cols());
    args.kv = kv_;
    args.kv_head_of_q = map_.data();
    args.num_q_heads = shape_.q_heads;
    args.scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
    args.out = out_.view(step_.num_tokens, q_cols());
    for (int layer = 0; layer < layers_; ++layer) {
      args.layer = layer;
      kernels::attend(ctx_, args);
    }
  }

 private:
  using T = BFloat16;
  std::int64_t q_cols() const { return std::int64_t{shape_.q_heads} * shape_.head_dim; }

  template <typename V>
  Buffer<V, D> upload(const std::vector<V>& host) {
    Buffer<V, D> buffer(static_cast<std::int64_t>(host.size()));
    copy_to_device(ctx_, buffer.data(), host.data(), buffer.size_bytes());
    ctx_.compute().synchronize();
    return buffer;
  }
  Buffer<T, D> zeros(std::int64_t size) {
    Buffer<T, D> buffer(size);
    fill_zero(ctx_, buffer.data(), buffer.size_bytes());
    return buffer;
  }

  void fill(int sequences, int context, const std::vector<std::int32_t>& positions,
            const std::vector<std::int32_t>& slots) {
    const auto tokens = static_cast<std::int32_t>(positions.size());
    layers_ = std::clamp(static_cast<int>(double(pool_bytes_) / kv_bytes()), 4, most_layers_);
    const int chunks = (context + kernels::kChunkTokens - 1) / kernels::kChunkTokens;
    kv_.num_kv_heads = shape_.kv_heads;
    kv_.head_dim = shape_.head_dim;
    kv_.layer_stride = 2 * shape_.kv_heads * kv_.head_stride();
    kv_.chunk_stride = kv_.layer_stride * layers_;
    cache_ = zeros(kv_.chunk_stride * chunks * sequences);
    std::vector<std::int32_t> table, map;
    for (int i = 0; i < chunks * sequences; ++i) table.push_back(i);
    for (int i = 0; i < shape_.q_heads; ++i) map.push_back(i / (shape_.q_heads / shape_.kv_heads));
    table_ = upload(table);
    map_ = upload(map);
    positions_ = upload(positions);
    slots_ = upload(slots);
    q_ = zeros(tokens * q_cols());
    out_ = zeros(tokens * q_cols());
    kv_.base = cache_.data();
    kv_.chunk_table = table_.data();
    kv_.table_stride = chunks;
    step_.num_tokens = tokens;
    step_.max_kv_tokens = context;
    step_.positions = positions_.data();
    step_.slots = slots_.data();
  }

  Context<D>& ctx_;
  AttentionShape shape_;
  std::int64_t pool_bytes_;
  int most_layers_, layers_ = 1;
  double kv_tokens_ = 0, pairs_ = 0;
  Buffer<T, D> cache_, q_, out_;
  Buffer<std::int32_t, D> table_, map_, positions_, slots_, segments_;
  kernels::StepView<D> step_;
  kernels::KvView<T, D> kv_;
};

}  // namespace tandem::launch
