// SPDX-License-Identifier: Apache-2.0
// One rank's slice of a model on its device: weights by layer and the constant tables that the
// seams read. Filled once by `load_model`, read-only after. Owns everything it points to.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/add_norm.h"
#include "kernels/linear.h"
#include "kernels/qkv_project.h"
#include "parallel/shard.h"
#include "runtime/model_config.h"

namespace tandem::runtime {

/// Shapes are this rank's: q = query heads * head_dim, kv = KV heads * head_dim, I = intermediate
/// columns rounded up to 16. Empty buffers: the model has no such weight.
template <typename T, Device D>
struct LayerWeights {
  kernels::LinearWeight<T, D> qkv;      ///< [q + 2 kv, hidden]
  kernels::LinearWeight<T, D> output;   ///< [hidden, q]
  kernels::LinearWeight<T, D> gate_up;  ///< [2 I, hidden], interleaved by 16
  kernels::LinearWeight<T, D> down;     ///< [hidden, I]
  Buffer<float, D> qkv_bias, output_bias, gate_up_bias, down_bias;
  Buffer<float, D> attention_norm, attention_post_norm, mlp_norm, mlp_post_norm;  ///< [hidden]
  Buffer<float, D> q_norm, k_norm;  ///< [head_dim], or [q] and [kv] when one norm spans all heads
};

template <Device D>
struct RopeBuffers {
  Buffer<float, D> cos, sin;  ///< [max_position, rotary_dim / 2]
  std::int32_t rotary_dim = 0;
  kernels::RopeTable<D> view() const { return {cos.data(), sin.data(), rotary_dim}; }
};

template <typename T, Device D>
struct Model {
  ModelConfig config;
  parallel::Shard shard;
  kernels::LinearWeight<T, D> head;  ///< [vocab shard, hidden]
  Buffer<T, D> embedding;            ///< [vocab shard, hidden]; empty: shared with `head`
  Buffer<float, D> final_norm;       ///< [hidden]
  std::vector<LayerWeights<T, D>> layers;
  std::vector<RopeBuffers<D>> ropes;
  Buffer<std::int32_t, D> kv_head_of_q;  ///< [query heads of this rank]
  std::int64_t weight_bytes = 0;         ///< On the device, this rank.

  const T* embedding_table() const;  ///< Row-major, or null: `head` holds it.
};

/// The rows of a head that look-ups can read in place; null: they go through `copy_row`.
template <typename T>
const T* table_of(const kernels::LinearWeight<T, Cpu>&) {
  return nullptr;
}
template <typename T>
const T* table_of(const kernels::LinearWeight<T, Cuda>& weight) {
  return weight.data();
}

template <typename T, Device D>
const T* Model<T, D>::embedding_table() const {
  return embedding.size() > 0 ? embedding.data() : table_of(head);
}

}  // namespace tandem::runtime
