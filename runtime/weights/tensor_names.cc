// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/tensor_names.h"

#include <algorithm>
#include <iterator>

#include "kernels/device/error.h"

namespace tandem::runtime {

std::int64_t NamedShape::num_elements() const {
  std::int64_t count = 1;
  for (std::int64_t extent : shape) count *= extent;
  return count;
}

TensorNames::TensorNames(const ModelConfig& config)
    : vocab_(config.vocab_size),
      hidden_(config.hidden_size),
      intermediate_(config.intermediate_size),
      q_rows_(config.num_heads * config.head_dim),
      kv_rows_(config.num_kv_heads * config.head_dim),
      head_dim_(config.head_dim),
      num_layers_(config.num_layers()),
      tied_(config.tied_embeddings),
      qkv_bias_(config.qkv_bias),
      output_bias_(config.output_bias),
      mlp_bias_(config.mlp_bias),
      qk_norm_(config.qk_norm),
      qk_norm_full_(config.qk_norm_full),
      pre_norm_(config.pre_norm),
      post_norm_(config.post_norm),
      fused_(config.architecture == "Phi3ForCausalLM"),
      prefix_("model.") {}

TensorNames::Rows TensorNames::rows(LayerTensor tensor) const {
  const std::int64_t k_begin = fused_ ? q_rows_ : 0, v_begin = fused_ ? q_rows_ + kv_rows_ : 0;
  const std::int64_t up_begin = fused_ ? intermediate_ : 0;
  const bool qk = qk_norm_ || qk_norm_full_;
  switch (tensor) {
    case LayerTensor::kQ:
      return {0, q_rows_, hidden_};
    case LayerTensor::kK:
      return {k_begin, kv_rows_, hidden_};
    case LayerTensor::kV:
      return {v_begin, kv_rows_, hidden_};
    case LayerTensor::kO:
      return {0, hidden_, q_rows_};
    case LayerTensor::kGate:
      return {0, intermediate_, hidden_};
    case LayerTensor::kUp:
      return {up_begin, intermediate_, hidden_};
    case LayerTensor::kDown:
      return {0, hidden_, intermediate_};
    case LayerTensor::kQBias:
      return {0, qkv_bias_ ? q_rows_ : 0, 0};
    case LayerTensor::kKBias:
      return {k_begin, qkv_bias_ ? kv_rows_ : 0, 0};
    case LayerTensor::kVBias:
      return {v_begin, qkv_bias_ ? kv_rows_ : 0, 0};
    case LayerTensor::kOBias:
      return {0, output_bias_ ? hidden_ : 0, 0};
    case LayerTensor::kGateBias:
      return {0, mlp_bias_ ? intermediate_ : 0, 0};
    case LayerTensor::kUpBias:
      return {up_begin, mlp_bias_ ? intermediate_ : 0, 0};
    case LayerTensor::kDownBias:
      return {0, mlp_bias_ ? hidden_ : 0, 0};
    case LayerTensor::kAttentionNorm:
    case LayerTensor::kMlpNorm:
      return {0, pre_norm_ ? hidden_ : 0, 0};
    case LayerTensor::kAttentionPostNorm:
    case LayerTensor::kMlpPostNorm:
      return {0, post_norm_ ? hidden_ : 0, 0};
    case LayerTensor::kQNorm:
      return {0, !qk ? 0 : qk_norm_full_ ? q_rows_ : head_dim_, 0};
    case LayerTensor::kKNorm:
      return {0, !qk ? 0 : qk_norm_full_ ? kv_rows_ : head_dim_, 0};
  }
  TANDEM_ASSERT(false, "no such layer tensor");
}

std::string TensorNames::suffix(LayerTensor tensor) const {
  switch (tensor) {
    case LayerTensor::kQ:
      return fused_ ? "self_attn.qkv_proj.weight" : "self_attn.q_proj.weight";
    case LayerTensor::kK:
      return fused_ ? "self_attn.qkv_proj.weight" : "self_attn.k_proj.weight";
    case LayerTensor::kV:
      return fused_ ? "self_attn.qkv_proj.weight" : "self_attn.v_proj.weight";
    case LayerTensor::kO:
      return "self_attn.o_proj.weight";
    case LayerTensor::kGate:
      return fused_ ? "mlp.gate_up_proj.weight" : "mlp.gate_proj.weight";
    case LayerTensor::kUp:
      return fused_ ? "mlp.gate_up_proj.weight" : "mlp.up_proj.weight";
    case LayerTensor::kDown:
      return "mlp.down_proj.weight";
    case LayerTensor::kQBias:
      return fused_ ? "self_attn.qkv_proj.bias" : "self_attn.q_proj.bias";
    case LayerTensor::kKBias:
      return fused_ ? "self_attn.qkv_proj.bias" : "self_attn.k_proj.bias";
    case LayerTensor::kVBias:
      return fused_ ? "self_attn.qkv_proj.bias" : "self_attn.v_proj.bias";
    case LayerTensor::kOBias:
      return "self_attn.o_proj.bias";
    case LayerTensor::kGateBias:
      return fused_ ? "mlp.gate_up_proj.bias" : "mlp.gate_proj.bias";
    case LayerTensor::kUpBias:
      return fused_ ? "mlp.gate_up_proj.bias" : "mlp.up_proj.bias";
    case LayerTensor::kDownBias:
      return "mlp.down_proj.bias";
    case LayerTensor::kAttentionNorm:
      return "input_layernorm.weight";
    case LayerTensor::kAttentionPostNorm:
      return "post_attention_layernorm.weight";
    // Models without post norms call the norm before the MLP "post attention".
    case LayerTensor::kMlpNorm:
      return post_norm_ ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight";
    case LayerTensor::kMlpPostNorm:
      return "post_feedforward_layernorm.weight";
    case LayerTensor::kQNorm:
      return "self_attn.q_norm.weight";
    case LayerTensor::kKNorm:
      return "self_attn.k_norm.weight";
  }
  TANDEM_ASSERT(false, "no such layer tensor");
}

TensorSlice TensorNames::layer(std::int64_t layer, LayerTensor tensor) const {
  TANDEM_ASSERT(layer >= 0 && layer < num_layers_, "layer ", layer);
  const Rows at = rows(tensor);
  if (at.count == 0) return {};
  return {concat(prefix_, "layers.", layer, ".", suffix(tensor)), at.begin, at.count, at.cols};
}

TensorSlice TensorNames::embedding() const {
  return {prefix_ + "embed_tokens.weight", 0, vocab_, hidden_};
}

TensorSlice TensorNames::final_norm() const { return {prefix_ + "norm.weight", 0, hidden_, 0}; }

TensorSlice TensorNames::head() const {
  return tied_ ? embedding() : TensorSlice{"lm_head.weight", 0, vocab_, hidden_};
}

std::vector<NamedShape> TensorNames::all() const {
  std::vector<NamedShape> out;
  // Slices of a fused tensor are in the same layer; the last one ends it.
  const auto add = [&out](const TensorSlice& slice) {
    if (!slice) return;
    std::vector<std::int64_t> shape{slice.row_begin + slice.rows};
    if (slice.cols > 0) shape.push_back(slice.cols);
    const auto first = out.end() - std::min<std::ptrdiff_t>(std::ssize(out), kNumLayerTensors);
    const auto same = std::find_if(
        first, out.end(), [&](const NamedShape& other) { return other.name == slice.name; });
    if (same == out.end())
      out.push_back({slice.name, shape});
    else
      same->shape[0] = std::max(same->shape[0], shape[0]);
  };
  add(embedding());
  for (std::int64_t i = 0; i < num_layers_; ++i)
    for (int tensor = 0; tensor < kNumLayerTensors; ++tensor)
      add(layer(i, static_cast<LayerTensor>(tensor)));
  add(final_norm());
  if (!tied_) add(head());
  return out;
}

}  // namespace tandem::runtime
