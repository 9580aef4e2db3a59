// SPDX-License-Identifier: Apache-2.0
// What a model costs at a tensor-parallel size, known from its config alone: parameters, the slice
// and bytes of every rank, KV bytes per token, imbalance and duplicated bytes. Plain values.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/device/dtype.h"
#include "parallel/shard.h"
#include "runtime/model_config.h"

namespace tandem::runtime {

class Checkpoint;

struct RankReport {
  parallel::Range q_heads, kv_heads, intermediate, vocab;
  std::int64_t weight_bytes = 0;        ///< Matrices in the model's type, vectors in float32.
  std::int64_t cpu_weight_bytes = 0;    ///< The same of CPU ranks, which may keep few bits.
  std::int64_t kv_bytes_per_token = 0;  ///< Keys and values of all layers.
};

struct ModelReport {
  ModelConfig config;
  DType dtype = DType::kBF16;  ///< Of weights and KV cache.
  std::int64_t num_parameters = 0;
  std::vector<RankReport> ranks;
  double imbalance = 1.0;             ///< Largest rank's weight bytes / mean.
  std::int64_t duplicated_bytes = 0;  ///< Weights that more than one rank holds, above one copy.
  std::int64_t duplicated_kv_bytes_per_token = 0;
};

parallel::ShardShape shard_shape(const ModelConfig& config);

/// ConfigError when the model cannot be dealt to so many ranks (with the nearest legal sizes).
/// `checkpoint`: whose few bits CPU ranks of bfloat16 keep; null: none.
ModelReport report_model(const ModelConfig& config, int tensor_parallel_size, DType dtype,
                         const Checkpoint* checkpoint = nullptr);

std::string to_text(const ModelReport& report);  ///< A few lines and a table, for people.
/// The last line of `to_text`: imbalance and duplicated bytes.
std::string imbalance_text(const ModelReport& report);
/// "71.3 MB", decimal units, for people.
std::string bytes_text(std::int64_t bytes);
boost::json::object to_json(const ModelReport& report);

}  // namespace tandem::runtime
