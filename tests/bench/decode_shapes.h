// SPDX-License-Identifier: Apache-2.0
// Device data of the decode bench: one rank's shard of Llama-3-8B with random weights, a filled
// cache of given length, and the activations of a batch. Everything of a layer is its own memory,
// so that a pass over the layers reads from memory and not from L2.
#pragma once

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "kernels/add_norm.h"
#include "kernels/attend.h"
#include "kernels/device/cuda/context.h"
#include "kernels/gate_up_act.h"
#include "kernels/head.h"
#include "kernels/qkv_project.h"
#include "kernels/sample.h"

namespace tandem::bench {

using T = BFloat16;
using Weight = kernels::LinearWeight<T, Cuda>;

/// Sizes of one rank's shard.
struct ShardSizes {
  int tensor_parallel = 1, layers = 32, hidden = 4096, head_dim = 128;
  int q_heads() const { return 32 / tensor_parallel; }
  int kv_heads() const { return 8 / tensor_parallel; }
  int intermediate() const { return 14336 / tensor_parallel; }
  int vocab() const { return 128256 / tensor_parallel; }
  int qkv_rows() const { return (q_heads() + 2 * kv_heads()) * head_dim; }
};

template <typename V>
Buffer<V, Cuda> upload(Context<Cuda>& ctx, const std::vector<V>& host) {
  Buffer<V, Cuda> device(static_cast<std::int64_t>(host.size()));
  copy_to_device(ctx, device.data(), host.data(), device.size_bytes());
  ctx.compute().synchronize();
  return device;
}

/// Random values are drawn once and repeated: only their bits matter to the memory and the power.
class RandomSource {
 public:
  explicit RandomSource(Context<Cuda>& ctx) : ctx_(ctx) {
    std::mt19937 generator(7);
    std::normal_distribution<float> normal(0.0f, 0.02f);
    std::vector<T> host(std::size_t{8} << 20);
    for (T& value : host) value = T(normal(generator));
    block_ = upload(ctx, host);
  }
  Buffer<T, Cuda> make(std::int64_t size) const {
    Buffer<T, Cuda> buffer(size);
    for (std::int64_t at = 0; at < size; at += block_.size())
      copy_on_device(ctx_, buffer.data() + at, block_.data(),
                     std::min(block_.size(), size - at) * static_cast<std::int64_t>(sizeof(T)));
    return buffer;
  }
  Weight weight(std::int64_t rows, std::int64_t cols) const {
    return Weight(ctx_, make(rows * cols), rows, cols);
  }

 private:
  Context<Cuda>& ctx_;
  Buffer<T, Cuda> block_;
};

struct LayerWeights {
  Weight qkv, o, gate_up, down;
};

struct Model {
  ShardSizes sizes;
  std::vector<LayerWeights> layers;
  Weight head;
  Buffer<float, Cuda> norm, rope;

  Model(Context<Cuda>& ctx, const RandomSource& random, const ShardSizes& shard) : sizes(shard) {
    for (int i = 0; i < shard.layers; ++i)
      layers.push_back({random.weight(shard.qkv_rows(), shard.hidden),
                        random.weight(shard.hidden, shard.q_heads() * shard.head_dim),
                        random.weight(2 * shard.intermediate(), shard.hidden),
                        random.weight(shard.hidden, shard.intermediate())});
    head = random.weight(shard.vocab(), shard.hidden);
    norm = upload(ctx, std::vector<float>(static_cast<std::size_t>(shard.hidden), 1.0f));
    rope = upload(ctx, std::vector<float>(std::size_t{16384} * 64, 0.7071f));
  }
};

/// A batch of `batch` sequences whose next token is at position `context`.
struct Batch {
  int rows, context;
  Buffer<T, Cuda> residual, normed, qkv, attended, scratch, activated, cache;
  Buffer<float, Cuda> logits;
  Buffer<std::int32_t, Cuda> positions, slots, table, map, sample_rows;
  Buffer<std::int32_t, Cuda> tokens;  ///< Of two turns, and whose turn it is.
  Buffer<std::int32_t, Cuda> state;   ///< Last tokens and lengths of the slots.
  Buffer<std::uint8_t, Cuda> done;
  Buffer<kernels::SlotParams, Cuda> params;
  Buffer<kernels::TokenKey, Cuda> best;
  kernels::StepView<Cuda> step;
  kernels::KvView<T, Cuda> kv;

  Batch(Context<Cuda>& ctx, const RandomSource& random, const ShardSizes& s, int num_rows,
        int context_tokens)
      : rows(num_rows), context(context_tokens) {
    const auto n = static_cast<std::size_t>(rows);
    const std::int64_t m = rows;
    residual = random.make(m * s.hidden);
    normed = random.make(m * s.hidden);
    qkv = random.make(m * s.qkv_rows());
    attended = random.make(m * s.q_heads() * s.head_dim);
    scratch = random.make(m * 2 * std::max(s.intermediate(), s.hidden));
    activated = random.make(m * s.intermediate());
    logits = Buffer<float, Cuda>(m * s.vocab());
    const int chunks = context / kernels::kChunkTokens + 1;
    kv.num_kv_heads = s.kv_heads();
    kv.head_dim = s.head_dim;
    kv.layer_stride = 2 * s.kv_heads() * kv.head_stride();
    kv.chunk_stride = kv.layer_stride * s.layers;
    cache = random.make(kv.chunk_stride * chunks * rows);
    std::vector<std::int32_t> table_host, map_host, slots_host, ones(n, context);
    for (int i = 0; i < chunks * rows; ++i) table_host.push_back(chunks * rows - 1 - i);
    for (int i = 0; i < s.q_heads(); ++i) map_host.push_back(i / (s.q_heads() / s.kv_heads()));
    for (int i = 0; i < rows; ++i) slots_host.push_back(i);
    table = upload(ctx, table_host);
    map = upload(ctx, map_host);
    slots = upload(ctx, slots_host);
    sample_rows = upload(ctx, slots_host);
    positions = upload(ctx, ones);
    tokens = upload(ctx, std::vector<std::int32_t>(2 * n + 1));
    best = upload(ctx, std::vector<kernels::TokenKey>(n));
    state = upload(ctx, std::vector<std::int32_t>(2 * n));
    done = upload(ctx, std::vector<std::uint8_t>(n));
    params = upload(ctx, std::vector<kernels::SlotParams>(n));
    kv.base = cache.data();
    kv.chunk_table = table.data();
    kv.table_stride = chunks;
    step.num_tokens = step.num_decode = rows;
    step.max_kv_tokens = chunks * kernels::kChunkTokens;
    step.positions = positions.data();
    step.slots = slots.data();
  }
};

}  // namespace tandem::bench
