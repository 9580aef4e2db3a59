// SPDX-License-Identifier: Apache-2.0
// A model as data: what config.json, generation_config.json or GGUF metadata say, reduced to the
// numbers and switches that one decoder needs. No family has code of its own; a family is a
// function config.json -> ModelConfig plus tensor names (`TensorNames`). Plain values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kernels/device/dtype.h"
#include "kernels/gate_up_act.h"

namespace tandem::runtime {

using Activation = kernels::GateActivation;

enum class RopeScaling : std::uint8_t { kNone, kLinear, kLlama3, kDynamic, kYarn, kLongRope };

/// Rotary embedding of a group of layers. Published formulas as in `transformers`
/// `modeling_rope_utils`.
struct RopeConfig {
  double theta = 10000.0;
  int rotary_dim = 0;  ///< Leading dims of a head that rotate (partial rotary factor applied).
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;              // llama3
  double beta_fast = 32.0, beta_slow = 1.0, attention_factor = 0.0;  // yarn, longrope; 0: derived
  double mscale = 0.0, mscale_all_dim = 0.0;                         // yarn
  bool truncate = true;                                              // yarn
  std::int64_t original_max_position = 0;
  std::vector<double> short_factor, long_factor;  // longrope
};

/// What differs from layer to layer.
struct LayerConfig {
  int rope = 0;                     ///< Index into ModelConfig::ropes; -1: no rotary embedding.
  std::int64_t sliding_window = 0;  ///< 0: full attention. A query sees the last `window` keys.
};

struct ModelConfig {
  std::string architecture;  ///< "LlamaForCausalLM", ...
  std::string name;          ///< Folder or file name, for people.
  std::int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0;
  std::int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  std::int64_t max_position = 0;
  float norm_eps = 1e-5f;
  DType dtype = DType::kBF16;  ///< The checkpoint's own type.
  Activation activation = Activation::kSilu;
  bool tied_embeddings = false;
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  bool qk_norm = false;        ///< RMS norm of each query and key head, before rotary.
  bool qk_norm_full = false;   ///< OLMo-2: the norm spans all heads of q (k), not one head.
  bool norm_plus_one = false;  ///< Gemma: weight is stored as w, applied as 1 + w.
  bool pre_norm = true;        ///< Norm before attention and MLP (false: OLMo-2).
  bool post_norm = false;      ///< Norm of the attention and MLP output, before the residual.
  float embedding_scale = 1.0f, residual_scale = 1.0f, logit_scale = 1.0f;
  float attention_scale = 0.0f;                          ///< 0: 1/sqrt(head_dim).
  float attention_softcap = 0.0f, final_softcap = 0.0f;  ///< 0: none.
  std::vector<RopeConfig> ropes;
  std::vector<LayerConfig> layers;

  // Generation defaults.
  std::vector<std::int32_t> eos_ids;
  std::optional<std::int32_t> bos_id;
  std::optional<float> default_temperature, default_top_p, default_min_p,
      default_repetition_penalty;
  std::optional<std::int32_t> default_top_k;

  std::int64_t num_layers() const { return static_cast<std::int64_t>(layers.size()); }
  std::int64_t num_parameters() const;  ///< A tied head counts once.
};

/// Reads a Hugging Face folder's config.json and generation_config.json, or the metadata of a
/// `.gguf` file. ConfigError names the file and key; an unknown architecture or
/// `quantization_config` is refused by name.
ModelConfig read_model_config(const std::filesystem::path& path);

/// Architectures that `read_model_config` accepts.
std::vector<std::string> known_architectures();

}  // namespace tandem::runtime
