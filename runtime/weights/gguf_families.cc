// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/gguf_families.h"

#include <cmath>

#include "kernels/device/error.h"
#include "runtime/model_limits.h"

namespace tandem::runtime {
namespace {

constexpr double kMaxScale = 1e6;

std::int64_t window_of(const GgufFile& file, const GgufKeys& key, std::int64_t fallback) {
  return file.integer_or(key("attention.sliding_window"), 0, kMaxPositions, fallback);
}

/// Layers that slide: a list in the file, or every one but the last of each `period`.
void windows(const GgufFile& file, const GgufKeys& key, ModelConfig& config, std::int64_t window,
             std::int64_t period) {
  const std::string name = key("attention.sliding_window_pattern");
  const GgufValue* pattern = file.find(name);
  std::vector<std::int64_t> list;
  if (pattern != nullptr && std::holds_alternative<std::int64_t>(*pattern))
    period = file.integer(name, 1, 1 << 16);
  else if (pattern != nullptr)
    list = file.list<std::int64_t>(name);
  TANDEM_REQUIRE(list.empty() || list.size() == config.layers.size(), file.path(), ": ", name,
                 " must have one entry per layer; the file is damaged, download it again");
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const bool sliding =
        list.empty() ? (static_cast<std::int64_t>(i) + 1) % period != 0 : list[i] != 0;
    config.layers[i].sliding_window = sliding ? window : 0;
  }
}

/// A window of 0 in the file means none.
void phi3(const GgufFile& file, const GgufKeys& key, ModelConfig& config) {
  const std::int64_t window = window_of(file, key, 0);
  for (LayerConfig& layer : config.layers) layer.sliding_window = window;
}

void granite(const GgufFile& file, const GgufKeys& key, ModelConfig& config) {
  const auto scale = [&](std::string_view name) {
    return static_cast<float>(file.number_or(key(name), 1e-6, kMaxScale, 1.0));
  };
  config.embedding_scale = scale("embedding_scale");
  config.residual_scale = scale("residual_scale");
  config.attention_scale =
      static_cast<float>(file.number_or(key("attention.scale"), 0.0, kMaxScale, 0.0));
  config.logit_scale = 1.0f / scale("logit_scale");
}

void olmo2(const GgufFile& file, const GgufKeys& key, ModelConfig& config) {
  TANDEM_REQUIRE(window_of(file, key, 0) == 0, file.path(),
                 " is an OLMo 3 model (sliding windows), which Tandem does not run; use OLMo 2");
  config.pre_norm = false;
  config.post_norm = true;
}

/// What Gemma 2 and 3 share. The conversion has added the 1 to the norms. `wide_layers` is the
/// depth of the 27B model, whose attention scale is that of its width.
void gemma(const GgufFile& file, const GgufKeys& key, ModelConfig& config, int wide_layers) {
  config.activation = Activation::kGeluTanh;
  config.post_norm = true;
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  config.attention_scale =
      config.num_layers() == wide_layers
          ? 1.0f / std::sqrt(static_cast<float>(config.hidden_size / config.num_heads))
          : 0.0f;
  config.final_softcap =
      static_cast<float>(file.number_or(key("final_logit_softcapping"), 0.0, kMaxScale, 0.0));
}

void gemma2(const GgufFile& file, const GgufKeys& key, ModelConfig& config) {
  gemma(file, key, config, 46);
  config.attention_softcap =
      static_cast<float>(file.number_or(key("attn_logit_softcapping"), 0.0, kMaxScale, 0.0));
  windows(file, key, config, window_of(file, key, 4096), 2);
}

/// Sliding layers rotate with a base of their own and without scaling.
void gemma3(const GgufFile& file, const GgufKeys& key, ModelConfig& config) {
  gemma(file, key, config, 62);
  windows(file, key, config, window_of(file, key, 0), 6);
  RopeConfig local;
  local.rotary_dim = config.ropes[0].rotary_dim;
  local.theta = file.number_or(key("rope.freq_base_swa"), 1.0001, 1e12, 10000.0);
  config.ropes.push_back(local);
  for (LayerConfig& layer : config.layers) layer.rope = layer.sliding_window > 0 ? 1 : 0;
}

/// Every fourth layer has no rotary embedding.
void smollm3(const GgufFile&, const GgufKeys&, ModelConfig& config) {
  for (std::size_t i = 3; i < config.layers.size(); i += 4) config.layers[i].rope = -1;
}

constexpr GgufFamily kFamilies[] = {
    {"llama", "LlamaForCausalLM", true, nullptr},
    {"qwen2", "Qwen2ForCausalLM", false, nullptr},
    {"qwen3", "Qwen3ForCausalLM", false, nullptr},
    {"phi3", "Phi3ForCausalLM", false, phi3},
    {"granite", "GraniteForCausalLM", true, granite},
    {"olmo2", "Olmo2ForCausalLM", false, olmo2},
    {"gemma2", "Gemma2ForCausalLM", false, gemma2},
    {"gemma3", "Gemma3ForCausalLM", false, gemma3},
    {"smollm3", "SmolLM3ForCausalLM", true, smollm3},
};

}  // namespace

const GgufFamily& gguf_family(const GgufFile& file) {
  const std::string name = file.text("general.architecture");
  std::string known;
  for (const GgufFamily& family : kFamilies) {
    if (family.name == name) return family;
    known += concat(known.empty() ? "" : ", ", family.name);
  }
  throw ConfigError(concat(file.path(), ": architecture ", name,
                           " is not supported; of GGUF architectures Tandem knows ", known));
}

}  // namespace tandem::runtime
