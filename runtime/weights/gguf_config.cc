// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/gguf_config.h"

#include <algorithm>

#include "kernels/device/error.h"
#include "runtime/model_limits.h"
#include "runtime/weights/gguf_families.h"

namespace tandem::runtime {
namespace {

DType dtype_of(const GgufFile& file) {
  const TensorEntry* tensor = file.find_tensor("blk.0.attn_output.weight");
  if (tensor != nullptr && tensor->type == StorageType::kF32) return DType::kF32;
  if (tensor != nullptr && tensor->type == StorageType::kF16) return DType::kF16;
  return DType::kBF16;
}

void read_shape(const GgufFile& file, const GgufKeys& key, ModelConfig& config) {
  config.hidden_size = file.integer(key("embedding_length"), 1, kMaxHiddenSize);
  config.intermediate_size = file.integer(key("feed_forward_length"), 1, kMaxIntermediateSize);
  config.num_heads = file.integer(key("attention.head_count"), 1, kMaxHeads);
  config.num_kv_heads =
      file.integer_or(key("attention.head_count_kv"), 1, kMaxHeads, config.num_heads);
  TANDEM_REQUIRE(config.num_heads % config.num_kv_heads == 0, file.path(), ": ", config.num_heads,
                 " attention heads are no multiple of ", config.num_kv_heads,
                 " key-value heads; the file is damaged, download it again");
  config.head_dim =
      file.integer_or(key("attention.key_length"), 2, kMaxHeadDim,
                      std::max<std::int64_t>(config.hidden_size / config.num_heads, 2));
  TANDEM_REQUIRE(config.head_dim <= kMaxHeadDim, file.path(), ": attention heads of ",
                 config.head_dim,
                 " dims are no sensible model; the file is damaged, download it "
                 "again");
  config.max_position = file.integer(key("context_length"), 1, kMaxPositions);
  config.norm_eps =
      static_cast<float>(file.number(key("attention.layer_norm_rms_epsilon"), 0.0, 1.0));
  config.layers.resize(static_cast<std::size_t>(file.integer(key("block_count"), 1, kMaxLayers)));
  const TensorEntry* embedding = file.find_tensor("token_embd.weight");
  TANDEM_REQUIRE(
      embedding != nullptr && embedding->shape.size() == 2 && embedding->shape[0] <= kMaxVocabSize,
      file.path(),
      " has no sensible tensor token_embd.weight: it is not a whole model, download it again");
  config.vocab_size = embedding->shape[0];
  TANDEM_REQUIRE(file.integer_or(key("expert_count"), 0, 1 << 20, 0) == 0, file.path(),
                 " is a mixture of experts, which Tandem does not run; use a dense model");
}

/// What the tensors themselves say.
void read_switches(const GgufFile& file, ModelConfig& config) {
  const auto has = [&](std::string_view name) { return file.find_tensor(name) != nullptr; };
  config.tied_embeddings = !has("output.weight");
  config.qkv_bias = has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias");
  config.output_bias = has("blk.0.attn_output.bias");
  config.mlp_bias = has("blk.0.ffn_up.bias");
  const TensorEntry* q_norm = file.find_tensor("blk.0.attn_q_norm.weight");
  if (q_norm == nullptr) return;
  config.qk_norm_full = q_norm->shape[0] != config.head_dim;
  config.qk_norm = !config.qk_norm_full;
}

void read_tokens(const GgufFile& file, ModelConfig& config) {
  for (std::string_view key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                               "tokenizer.ggml.eom_token_id"}) {
    if (!file.has(key)) continue;
    const auto id = static_cast<std::int32_t>(file.integer(key, 0, config.vocab_size - 1));
    if (std::find(config.eos_ids.begin(), config.eos_ids.end(), id) == config.eos_ids.end())
      config.eos_ids.push_back(id);
  }
  if (file.has("tokenizer.ggml.bos_token_id"))
    config.bos_id = static_cast<std::int32_t>(
        file.integer("tokenizer.ggml.bos_token_id", 0, config.vocab_size - 1));
}

}  // namespace

bool gguf_rows_are_permuted(const GgufFile& file) { return gguf_family(file).permuted_rows; }

ModelConfig gguf_config(const GgufFile& file) {
  const GgufFamily& family = gguf_family(file);
  const GgufKeys key{std::string(family.name)};
  ModelConfig config;
  config.architecture = family.architecture;
  config.name =
      file.text_if("general.name").value_or(std::filesystem::path(file.path()).stem().string());
  read_shape(file, key, config);
  read_switches(file, config);
  config.dtype = dtype_of(file);
  config.ropes = {gguf_rope(file, key, config)};
  if (family.apply != nullptr) family.apply(file, key, config);
  read_tokens(file, config);
  return config;
}

GgufVocabulary gguf_vocabulary(const GgufFile& file) {
  GgufVocabulary out;
  out.model = file.text("tokenizer.ggml.model");
  out.pre = file.text_if("tokenizer.ggml.pre").value_or("");
  out.tokens = file.list<std::string>("tokenizer.ggml.tokens");
  for (double score : file.list<double>("tokenizer.ggml.scores"))
    out.scores.push_back(static_cast<float>(score));
  for (std::int64_t type : file.list<std::int64_t>("tokenizer.ggml.token_type"))
    out.types.push_back(static_cast<std::int32_t>(type));
  out.merges = file.list<std::string>("tokenizer.ggml.merges");
  const auto id = [&](std::string_view key) -> std::optional<TokenId> {
    if (!file.has(key)) return std::nullopt;
    return static_cast<TokenId>(file.integer(key, 0, std::ssize(out.tokens) - 1));
  };
  out.bos = id("tokenizer.ggml.bos_token_id");
  out.eos = id("tokenizer.ggml.eos_token_id");
  out.unknown = id("tokenizer.ggml.unknown_token_id");
  out.padding = id("tokenizer.ggml.padding_token_id");
  out.add_bos = file.flag("tokenizer.ggml.add_bos_token");
  out.add_eos = file.flag("tokenizer.ggml.add_eos_token");
  out.add_space_prefix = file.flag("tokenizer.ggml.add_space_prefix");
  return out;
}

ModelConfig read_gguf_config(const std::filesystem::path& path) {
  return gguf_config(GgufFile(path));
}

GgufVocabulary read_gguf_vocabulary(const std::filesystem::path& path) {
  return gguf_vocabulary(GgufFile(path));
}

std::optional<TemplateTexts> read_gguf_chat_template(const std::filesystem::path& path) {
  const GgufFile file(path);
  auto main = file.text_if("tokenizer.chat_template");
  if (!main) return std::nullopt;
  return TemplateTexts{std::move(*main), file.text_if("tokenizer.chat_template.tool_use")};
}

}  // namespace tandem::runtime
