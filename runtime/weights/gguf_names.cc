// SPDX-License-Identifier: Apache-2.0
// GGUF tensor names -> Hugging Face names.
#include <charconv>
#include <map>

#include "kernels/device/error.h"
#include "runtime/weights/gguf_config.h"

namespace tandem::runtime {
namespace {

using NameMap = std::map<std::string_view, std::string_view>;

const NameMap& model_names() {
  static const NameMap names = {{"token_embd.weight", "model.embed_tokens.weight"},
                                {"output_norm.weight", "model.norm.weight"},
                                {"output.weight", "lm_head.weight"}};
  return names;
}

const NameMap& layer_names() {
  static const NameMap names = {{"attn_q", "self_attn.q_proj"},
                                {"attn_k", "self_attn.k_proj"},
                                {"attn_v", "self_attn.v_proj"},
                                {"attn_qkv", "self_attn.qkv_proj"},
                                {"attn_output", "self_attn.o_proj"},
                                {"attn_q_norm", "self_attn.q_norm"},
                                {"attn_k_norm", "self_attn.k_norm"},
                                {"attn_norm", "input_layernorm"},
                                {"post_attention_norm", "post_attention_layernorm"},
                                {"post_ffw_norm", "post_feedforward_layernorm"},
                                {"ffn_norm", "post_attention_layernorm"},
                                {"ffn_gate", "mlp.gate_proj"},
                                {"ffn_up", "mlp.up_proj"},
                                {"ffn_down", "mlp.down_proj"}};
  return names;
}

/// Frequencies and factors of rotary embeddings are read with the metadata.
bool is_rope_tensor(std::string_view name) { return name.starts_with("rope_"); }

[[noreturn]] void unknown(const GgufFile& file, std::string_view name) {
  throw ConfigError(concat(file.path(), ": tensor ", name,
                           " is none that Tandem knows for this architecture; update Tandem or "
                           "use another file"));
}

/// "blk.<layer>.<part>.<weight|bias>" -> "model.layers.<layer>....".
std::string layer_name(const GgufFile& file, std::string_view name, const ModelConfig& config) {
  const std::size_t layer_end = name.find('.', 4), kind = name.rfind('.');
  if (!name.starts_with("blk.") || layer_end == std::string_view::npos || kind <= layer_end)
    unknown(file, name);
  const std::string_view number = name.substr(4, layer_end - 4);
  std::int64_t layer = -1;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), layer);
  if (error != std::errc{} || end != number.data() + number.size() || layer < 0 ||
      layer >= config.num_layers())
    unknown(file, name);
  const auto part = layer_names().find(name.substr(layer_end + 1, kind - layer_end - 1));
  if (part == layer_names().end()) unknown(file, name);
  std::string_view to = part->second;
  if (part->first == "ffn_norm" && config.post_norm) to = "pre_feedforward_layernorm";
  if (part->first == "ffn_up" && config.architecture == "Phi3ForCausalLM") to = "mlp.gate_up_proj";
  return concat("model.layers.", layer, ".", to, name.substr(kind));
}

}  // namespace

TensorMap gguf_tensors(const GgufFile& file) {
  const ModelConfig config = gguf_config(file);
  const bool permuted = gguf_rows_are_permuted(file);
  TensorMap out;
  for (const auto& [name, tensor] : file.tensors()) {
    if (is_rope_tensor(name)) continue;
    const auto whole = model_names().find(name);
    const std::string to =
        whole != model_names().end() ? std::string(whole->second) : layer_name(file, name, config);
    TensorEntry entry = tensor;
    if (permuted && to.find(".q_proj.") != std::string::npos)
      entry.permuted_heads = static_cast<int>(config.num_heads);
    if (permuted && to.find(".k_proj.") != std::string::npos)
      entry.permuted_heads = static_cast<int>(config.num_kv_heads);
    if (entry.permuted_heads > 0 && entry.shape[0] % (2 * entry.permuted_heads) != 0)
      unknown(file, name);
    if (!out.emplace(to, std::move(entry)).second) unknown(file, name);
  }
  return out;
}

}  // namespace tandem::runtime
