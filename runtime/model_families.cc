// SPDX-License-Identifier: Apache-2.0
#include "runtime/model_families.h"

#include <cmath>

#include "kernels/device/error.h"
#include "runtime/model_limits.h"
#include "runtime/rope_config.h"

namespace tandem::runtime {
namespace json = boost::json;
namespace {

constexpr double kMaxScale = 1e6;

void one_rope(const JsonFields& fields, ModelConfig& config, double default_theta = 10000.0) {
  config.ropes = {read_rope(fields, rope_parameters(fields), default_theta, config.head_dim,
                            config.max_position)};
  // Dynamic scaling is made for sequences of up to `factor` times the trained length.
  const RopeConfig& rope = config.ropes[0];
  if (rope.scaling == RopeScaling::kDynamic && rope.factor > 1.0)
    config.max_position =
        std::min(kMaxPositions,
                 static_cast<std::int64_t>(rope.factor * static_cast<double>(config.max_position)));
}

void attention_bias(const JsonFields& fields, ModelConfig& config) {
  config.qkv_bias = config.output_bias = fields.flag_or("attention_bias", false);
}

/// Windows per layer: `layer_types` where it is written, else `is_sliding(layer)`.
template <typename Predicate>
void windows(const JsonFields& fields, ModelConfig& config, std::int64_t window,
             Predicate is_sliding) {
  const json::array* types = fields.list("layer_types");
  if (types != nullptr && types->size() != config.layers.size())
    fields.wrong("layer_types", concat("a list of ", config.layers.size(), " layer types"));
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    bool sliding = is_sliding(static_cast<std::int64_t>(i));
    if (types != nullptr) {
      const json::value& type = (*types)[i];
      sliding = type == "sliding_attention";
      if (!sliding && type != "full_attention")
        fields.wrong("layer_types", "made of \"full_attention\" and \"sliding_attention\"");
    }
    if (sliding && window == 0)
      fields.wrong("sliding_window", "a number of tokens, because some layers slide");
    config.layers[i].sliding_window = sliding ? window : 0;
  }
}

std::int64_t sliding_window(const JsonFields& fields, std::int64_t fallback = 0) {
  return fields.integer_or("sliding_window", 1, kMaxPositions, fallback);
}

void llama(const JsonFields& fields, ModelConfig& config) {
  one_rope(fields, config);
  attention_bias(fields, config);
  config.mlp_bias = fields.flag_or("mlp_bias", false);
}

/// Every layer slides where there is a window.
void mistral(const JsonFields& fields, ModelConfig& config) {
  one_rope(fields, config);
  const std::int64_t window = sliding_window(fields);
  windows(fields, config, window, [&](std::int64_t) { return window > 0; });
}

/// Qwen's switch: layers from `max_window_layers` on slide when `use_sliding_window` is set.
void qwen_windows(const JsonFields& fields, ModelConfig& config) {
  if (!fields.flag_or("use_sliding_window", false)) return;
  const std::int64_t first = fields.integer_or("max_window_layers", 0, kMaxPositions, 28);
  windows(fields, config, sliding_window(fields, 4096),
          [&](std::int64_t layer) { return layer >= first; });
}

void qwen2(const JsonFields& fields, ModelConfig& config) {
  one_rope(fields, config);
  config.qkv_bias = true;
  qwen_windows(fields, config);
}

void qwen3(const JsonFields& fields, ModelConfig& config) {
  one_rope(fields, config);
  attention_bias(fields, config);
  config.qk_norm = true;
  qwen_windows(fields, config);
}

void granite(const JsonFields& fields, ModelConfig& config) {
  llama(fields, config);
  const auto multiplier = [&](std::string_view key) {
    return static_cast<float>(fields.number_or(key, 1e-6, kMaxScale, 1.0));
  };
  config.embedding_scale = multiplier("embedding_multiplier");
  config.residual_scale = multiplier("residual_multiplier");
  config.attention_scale = multiplier("attention_multiplier");
  config.logit_scale = 1.0f / multiplier("logits_scaling");
}

void olmo2(const JsonFields& fields, ModelConfig& config) {
  one_rope(fields, config);
  attention_bias(fields, config);
  config.qk_norm_full = true;
  config.pre_norm = false;
  config.post_norm = true;
}

/// What Gemma 2 and 3 share.
void gemma(const JsonFields& fields, ModelConfig& config) {
  attention_bias(fields, config);
  config.norm_plus_one = true;
  config.post_norm = true;
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  // Their code rounds the scale to the model's type.
  if (config.dtype == DType::kBF16) config.embedding_scale = BFloat16(config.embedding_scale);
  if (config.dtype == DType::kF16) config.embedding_scale = Float16(config.embedding_scale);
  config.attention_scale = static_cast<float>(
      1.0 / std::sqrt(fields.number_or("query_pre_attn_scalar", 1e-6, kMaxScale, 256.0)));
}

void gemma2(const JsonFields& fields, ModelConfig& config) {
  gemma(fields, config);
  one_rope(fields, config);
  config.attention_softcap =
      static_cast<float>(fields.number_or("attn_logit_softcapping", 1e-6, kMaxScale, 0.0));
  config.final_softcap =
      static_cast<float>(fields.number_or("final_logit_softcapping", 1e-6, kMaxScale, 0.0));
  windows(fields, config, sliding_window(fields, 4096),
          [](std::int64_t layer) { return layer % 2 == 0; });
}

/// Sliding layers rotate with a base of their own and without scaling.
void gemma3(const JsonFields& fields, ModelConfig& config) {
  gemma(fields, config);
  config.qk_norm = true;
  config.final_softcap =
      static_cast<float>(fields.number_or("final_logit_softcapping", 1e-6, kMaxScale, 0.0));
  if (fields.flag_or("use_bidirectional_attention", false))
    fields.wrong("use_bidirectional_attention", "false, because Tandem generates text");
  const std::int64_t pattern = fields.integer_or("sliding_window_pattern", 1, 1 << 16, 6);
  windows(fields, config, sliding_window(fields, 4096),
          [&](std::int64_t layer) { return (layer + 1) % pattern != 0; });

  const json::object* parameters = rope_parameters(fields);
  const json::object* global = parameters;
  json::object local{{"rope_theta", fields.number_or("rope_local_base_freq", 1.0001, 1e12, 1e4)}};
  if (parameters != nullptr && parameters->contains("full_attention")) {
    const JsonFields nested(*parameters, fields.where());
    global = nested.nested("full_attention");
    if (const json::object* sliding = nested.nested("sliding_attention")) local = *sliding;
  }
  config.ropes = {read_rope(fields, global, 1e6, config.head_dim, config.max_position),
                  read_rope(fields, &local, 1e4, config.head_dim, config.max_position)};
  for (LayerConfig& layer : config.layers) layer.rope = layer.sliding_window > 0 ? 1 : 0;
}

void smollm3(const JsonFields& fields, ModelConfig& config) {
  one_rope(fields, config, 2e6);
  attention_bias(fields, config);
  config.mlp_bias = fields.flag_or("mlp_bias", false);
  const json::array* rotates = fields.list("no_rope_layers");
  const std::int64_t interval = fields.integer_or("no_rope_layer_interval", 1, 1 << 16, 4);
  if (rotates != nullptr && rotates->size() < config.layers.size())
    fields.wrong("no_rope_layers", concat("a list of ", config.layers.size(), " numbers"));
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const bool has_rope = rotates != nullptr ? (*rotates)[i] != 0
                                             : (static_cast<std::int64_t>(i) + 1) % interval != 0;
    config.layers[i].rope = has_rope ? 0 : -1;
  }
  if (!fields.flag_or("use_sliding_window", false)) return;
  windows(fields, config, sliding_window(fields, 0), [&](std::int64_t layer) {
    return config.layers[static_cast<std::size_t>(layer)].rope < 0;
  });
}

}  // namespace

std::span<const Family> families() {
  static constexpr Family kFamilies[] = {
      {"LlamaForCausalLM", llama},         {"MistralForCausalLM", mistral},
      {"Qwen2ForCausalLM", qwen2},         {"Qwen3ForCausalLM", qwen3},
      {"Phi3ForCausalLM", mistral},        {"GraniteForCausalLM", granite},
      {"Olmo2ForCausalLM", olmo2},         {"Gemma2ForCausalLM", gemma2, true},
      {"Gemma3ForCausalLM", gemma3, true}, {"SmolLM3ForCausalLM", smollm3, true},
  };
  return kFamilies;
}

const Family* find_family(std::string_view architecture) {
  for (const Family& family : families())
    if (family.architecture == architecture) return &family;
  return nullptr;
}

}  // namespace tandem::runtime
