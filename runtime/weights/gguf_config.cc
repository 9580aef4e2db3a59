// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/gguf_config.h"

#include <algorithm>
#include <limits>

#include "kernels/device/error.h"

namespace tandem::runtime {
namespace {

constexpr std::int64_t kMaxWidth = std::int64_t{1} << 24, kMaxLayers = 4096, kMaxHeads = 1 << 16;
constexpr std::int64_t kMaxPosition = std::int64_t{1} << 40;

/// An architecture of llama.cpp.
struct GgufFamily {
  std::string_view name;          ///< `general.architecture`
  std::string_view architecture;  ///< As Hugging Face calls it.
  bool permuted_rows = false;     ///< The conversion interleaves the rows of q and k.
};

constexpr GgufFamily kFamilies[] = {
    {"llama", "LlamaForCausalLM", true},
};

const GgufFamily& family_of(const GgufFile& file) {
  const std::string name = file.text("general.architecture");
  std::string known;
  for (const GgufFamily& family : kFamilies) {
    if (family.name == name) return family;
    known += concat(known.empty() ? "" : ", ", family.name);
  }
  throw ConfigError(concat(file.path(), ": architecture ", name,
                           " is not supported; of GGUF architectures Tandem knows ", known));
}

/// Metadata keys of one architecture: "llama.block_count".
struct Keys {
  std::string prefix;
  std::string operator()(std::string_view key) const { return concat(prefix, ".", key); }
};

DType dtype_of(const GgufFile& file) {
  const TensorEntry* tensor = file.find_tensor("blk.0.attn_output.weight");
  if (tensor != nullptr && tensor->type == StorageType::kF32) return DType::kF32;
  if (tensor != nullptr && tensor->type == StorageType::kF16) return DType::kF16;
  return DType::kBF16;
}

std::vector<double> factors(const GgufFile& file, std::string_view name, int count) {
  const TensorEntry* tensor = file.find_tensor(name);
  TANDEM_REQUIRE(tensor != nullptr && tensor->type == StorageType::kF32 &&
                     tensor->shape == std::vector<std::int64_t>{count},
                 file.path(), ": tensor ", name, " must hold ", count,
                 " F32 values; the file is damaged, download it again");
  std::vector<float> values(static_cast<std::size_t>(count));
  std::copy_n(tensor->data, tensor->size_bytes, reinterpret_cast<std::byte*>(values.data()));
  for (float value : values)
    TANDEM_REQUIRE(value > 0 && value < 1e6f, file.path(), ": tensor ", name,
                   " must hold positive factors; the file is damaged, download it again");
  return {values.begin(), values.end()};
}

RopeConfig rope_of(const GgufFile& file, const Keys& key, const ModelConfig& config) {
  RopeConfig rope;
  rope.theta = file.number_or(key("rope.freq_base"), 1.0001, 1e12, 10000.0);
  rope.rotary_dim = static_cast<int>(
      file.integer_or(key("rope.dimension_count"), 2, config.head_dim, config.head_dim));
  TANDEM_REQUIRE(rope.rotary_dim % 2 == 0, file.path(),
                 ": rope.dimension_count is odd; the file is "
                 "damaged, download it again");
  rope.original_max_position = file.integer_or(key("rope.scaling.original_context_length"), 2,
                                               kMaxPosition, config.max_position);
  if (file.find_tensor("rope_freqs.weight") != nullptr) {
    // llama3 scaling arrives as one factor per frequency, for every length.
    rope.scaling = RopeScaling::kLongRope;
    rope.short_factor = rope.long_factor = factors(file, "rope_freqs.weight", rope.rotary_dim / 2);
    rope.attention_factor = 1.0;
    return rope;
  }
  const std::string type = file.text_if(key("rope.scaling.type")).value_or("none");
  if (type == "none") return rope;
  rope.factor = file.number(key("rope.scaling.factor"), 1e-3, 1e6);
  TANDEM_REQUIRE(type == "linear", file.path(), ": rope scaling ", type,
                 " is not supported in GGUF files of this architecture; use the safetensors "
                 "checkpoint");
  rope.scaling = RopeScaling::kLinear;
  return rope;
}

void read_shape(const GgufFile& file, const Keys& key, ModelConfig& config) {
  config.hidden_size = file.integer(key("embedding_length"), 1, kMaxWidth);
  config.intermediate_size = file.integer(key("feed_forward_length"), 1, kMaxWidth);
  config.num_heads = file.integer(key("attention.head_count"), 1, kMaxHeads);
  config.num_kv_heads =
      file.integer_or(key("attention.head_count_kv"), 1, kMaxHeads, config.num_heads);
  TANDEM_REQUIRE(config.num_heads % config.num_kv_heads == 0, file.path(), ": ", config.num_heads,
                 " attention heads are no multiple of ", config.num_kv_heads,
                 " key-value heads; the file is damaged, download it again");
  config.head_dim =
      file.integer_or(key("attention.key_length"), 2, 1 << 16,
                      std::max<std::int64_t>(config.hidden_size / config.num_heads, 2));
  config.max_position = file.integer(key("context_length"), 1, kMaxPosition);
  config.norm_eps =
      static_cast<float>(file.number(key("attention.layer_norm_rms_epsilon"), 0.0, 1.0));
  config.layers.resize(static_cast<std::size_t>(file.integer(key("block_count"), 1, kMaxLayers)));
  const TensorEntry* embedding = file.find_tensor("token_embd.weight");
  TANDEM_REQUIRE(embedding != nullptr && embedding->shape.size() == 2, file.path(),
                 " has no tensor token_embd.weight: it is not a whole model, download it again");
  config.vocab_size = embedding->shape[0];
  TANDEM_REQUIRE(file.integer_or(key("expert_count"), 0, 1 << 20, 0) == 0, file.path(),
                 " is a mixture of experts, which Tandem does not run; use a dense model");
}

/// What the tensors themselves say.
void read_switches(const GgufFile& file, ModelConfig& config) {
  const auto has = [&](std::string_view name) { return file.find_tensor(name) != nullptr; };
  config.tied_embeddings = !has("output.weight");
  config.qkv_bias = has("blk.0.attn_q.bias");
  config.output_bias = has("blk.0.attn_output.bias");
  config.mlp_bias = has("blk.0.ffn_up.bias");
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

bool gguf_rows_are_permuted(const GgufFile& file) { return family_of(file).permuted_rows; }

ModelConfig gguf_config(const GgufFile& file) {
  const GgufFamily& family = family_of(file);
  const Keys key{std::string(family.name)};
  ModelConfig config;
  config.architecture = family.architecture;
  config.name =
      file.text_if("general.name").value_or(std::filesystem::path(file.path()).stem().string());
  read_shape(file, key, config);
  read_switches(file, config);
  config.dtype = dtype_of(file);
  config.ropes = {rope_of(file, key, config)};
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

std::optional<std::string> read_gguf_chat_template(const std::filesystem::path& path) {
  return GgufFile(path).text_if("tokenizer.chat_template");
}

}  // namespace tandem::runtime
