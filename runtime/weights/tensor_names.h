// SPDX-License-Identifier: Apache-2.0
// Which checkpoint tensor, and which rows of it, holds each weight of a model. Names are Hugging
// Face names in every file format. Families differ in names and in what is fused; this is the one
// place that knows. Plain values; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/model_config.h"

namespace tandem::runtime {

/// The weights of one layer by role. A "norm" comes before its block and a "post norm" after it,
/// before the residual add, whatever the checkpoint calls them.
enum class LayerTensor : std::uint8_t {
  kQ,
  kK,
  kV,
  kO,  // matrices [out, in]
  kGate,
  kUp,
  kDown,
  kQBias,
  kKBias,
  kVBias,
  kOBias,  // vectors
  kGateBias,
  kUpBias,
  kDownBias,
  kAttentionNorm,
  kAttentionPostNorm,  // [hidden]
  kMlpNorm,
  kMlpPostNorm,
  kQNorm,
  kKNorm,  // [head_dim], or all heads of q (k): qk_norm_full
};
inline constexpr int kNumLayerTensors = static_cast<int>(LayerTensor::kKNorm) + 1;

/// Rows [row_begin, row_begin + rows) of a tensor; `rows` 0: the model has no such weight.
struct TensorSlice {
  std::string name;
  std::int64_t row_begin = 0;  ///< Of a vector: first element.
  std::int64_t rows = 0;       ///< Of a vector: number of elements.
  std::int64_t cols = 0;       ///< 0: a vector.
  explicit operator bool() const { return rows > 0; }
};

/// A whole tensor as the checkpoint must hold it.
struct NamedShape {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t num_elements() const;
};

class TensorNames {
 public:
  explicit TensorNames(const ModelConfig& config);

  TensorSlice layer(std::int64_t layer, LayerTensor tensor) const;
  TensorSlice embedding() const;   ///< [vocab, hidden]
  TensorSlice final_norm() const;  ///< [hidden]
  TensorSlice head() const;        ///< [vocab, hidden]; the embedding when tied

  /// Every tensor that the model needs, each once.
  std::vector<NamedShape> all() const;

 private:
  struct Rows {
    std::int64_t begin = 0, count = 0, cols = 0;
  };
  Rows rows(LayerTensor tensor) const;
  std::string suffix(LayerTensor tensor) const;

  std::int64_t vocab_, hidden_, intermediate_, q_rows_, kv_rows_, head_dim_, num_layers_;
  bool tied_, qkv_bias_, output_bias_, mlp_bias_, qk_norm_, qk_norm_full_, pre_norm_, post_norm_;
  bool fused_;          ///< Phi-3: qkv_proj and gate_up_proj.
  std::string prefix_;  ///< "model."
};

}  // namespace tandem::runtime
