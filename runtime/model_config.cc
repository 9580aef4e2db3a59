// SPDX-License-Identifier: Apache-2.0
#include "runtime/model_config.h"

#include "kernels/device/error.h"
#include "runtime/json_file.h"
#include "runtime/model_families.h"
#include "runtime/model_limits.h"
#include "runtime/weights/checkpoint.h"
#include "runtime/weights/gguf_config.h"
#include "runtime/weights/model_path.h"
#include "runtime/weights/tensor_names.h"

namespace tandem::runtime {
namespace json = boost::json;
namespace fs = std::filesystem;
namespace {

std::string known_list() {
  std::string text;
  for (const Family& family : families())
    text += concat(text.empty() ? "" : ", ", family.architecture);
  return text;
}

/// "org/name" for a snapshot of the Hugging Face cache, else the folder's own name.
std::string display_name(const fs::path& folder) {
  const fs::path path = fs::weakly_canonical(folder);
  const std::string repository = path.parent_path().parent_path().filename().string();
  if (path.parent_path().filename() != "snapshots" || !repository.starts_with("models--"))
    return path.filename().string();
  const std::string name = repository.substr(8);
  const auto at = name.find("--");
  return at == std::string::npos ? name : concat(name.substr(0, at), "/", name.substr(at + 2));
}

std::string architecture_of(const JsonFields& fields) {
  const json::array* list = fields.list("architectures");
  if (list == nullptr || list->empty() || !(*list)[0].is_string())
    fields.wrong("architectures", concat("a list with one of ", known_list()));
  return std::string((*list)[0].get_string());
}

void refuse_quantization(const JsonFields& fields) {
  const json::object* quantization = fields.nested("quantization_config");
  if (quantization == nullptr) return;
  const JsonFields inner(*quantization, fields.where());
  throw ConfigError(concat(fields.where(), ": the checkpoint is quantized with \"",
                           inner.text_or("quant_method", "an unnamed method"),
                           "\" (quantization_config), which Tandem does not read; use the model's "
                           "bfloat16 or float16 checkpoint, or a GGUF file"));
}

DType dtype_of(const JsonFields& fields, const std::string& text) {
  if (text == "bfloat16") return DType::kBF16;
  if (text == "float16") return DType::kF16;
  if (text == "float32") return DType::kF32;
  fields.wrong(fields.has("dtype") ? "dtype" : "torch_dtype",
               "\"bfloat16\", \"float16\" or \"float32\"");
}

Activation activation_of(const JsonFields& fields) {
  const std::string_view key = fields.has("hidden_activation") ? "hidden_activation" : "hidden_act";
  const std::string text = fields.text_or(key, "silu");
  if (text == "silu" || text == "swish") return Activation::kSilu;
  if (text == "gelu_pytorch_tanh" || text == "gelu_new") return Activation::kGeluTanh;
  if (text == "gelu") return Activation::kGelu;
  fields.wrong(key, "one of silu, gelu, gelu_new, gelu_pytorch_tanh");
}

void read_shape(const JsonFields& fields, ModelConfig& config) {
  config.vocab_size = fields.integer("vocab_size", 1, kMaxVocabSize);
  config.hidden_size = fields.integer("hidden_size", 1, kMaxHiddenSize);
  config.intermediate_size = fields.integer("intermediate_size", 1, kMaxIntermediateSize);
  config.num_heads = fields.integer("num_attention_heads", 1, kMaxHeads);
  config.num_kv_heads = fields.integer_or("num_key_value_heads", 1, kMaxHeads, config.num_heads);
  if (config.num_heads % config.num_kv_heads != 0)
    fields.wrong("num_key_value_heads",
                 concat("a divisor of num_attention_heads ", config.num_heads));
  if (!fields.has("head_dim") && config.hidden_size % config.num_heads != 0)
    fields.wrong("hidden_size", concat("a multiple of num_attention_heads ", config.num_heads,
                                       " when there is no head_dim"));
  config.head_dim =
      fields.integer_or("head_dim", 2, kMaxHeadDim, config.hidden_size / config.num_heads);
  if (config.head_dim < 2 || config.head_dim > kMaxHeadDim)
    fields.wrong("num_attention_heads",
                 concat("a number that leaves 2 to ", kMaxHeadDim, " dims to each head"));
  config.max_position = fields.integer("max_position_embeddings", 1, kMaxPositions);
  config.norm_eps = static_cast<float>(fields.number_or("rms_norm_eps", 0.0, 1.0, 1e-6));
  config.layers.resize(
      static_cast<std::size_t>(fields.integer("num_hidden_layers", 1, kMaxLayers)));
}

/// One id or a list of ids.
std::vector<std::int32_t> ids(const JsonFields& fields, std::string_view key,
                              std::int64_t vocab_size) {
  const json::value* value = fields.find(key);
  if (value == nullptr) return {};
  std::vector<std::int32_t> out;
  const json::array one{*value};
  for (const json::value& item : value->is_array() ? value->get_array() : one) {
    if (!item.is_int64() || item.get_int64() < 0 || item.get_int64() >= vocab_size)
      fields.wrong(key, concat("token ids below vocab_size ", vocab_size));
    out.push_back(static_cast<std::int32_t>(item.get_int64()));
  }
  return out;
}

/// generation_config.json wins over config.json.
void read_generation(const JsonFields& fields, ModelConfig& config) {
  if (auto eos = ids(fields, "eos_token_id", config.vocab_size); !eos.empty())
    config.eos_ids = std::move(eos);
  if (auto bos = ids(fields, "bos_token_id", config.vocab_size); !bos.empty())
    config.bos_id = bos.front();
  const auto read = [&](std::string_view key, double max, std::optional<float>& out) {
    if (const auto value = fields.number_if(key, 0.0, max)) out = static_cast<float>(*value);
  };
  read("temperature", 1e3, config.default_temperature);
  read("top_p", 1.0, config.default_top_p);
  read("min_p", 1.0, config.default_min_p);
  read("repetition_penalty", 1e3, config.default_repetition_penalty);
  if (fields.has("top_k"))
    config.default_top_k = static_cast<std::int32_t>(fields.integer("top_k", 0, 1 << 30));
}

/// Old files do not say their type; then the first matrix of the checkpoint does.
DType checkpoint_dtype(const fs::path& folder) {
  if (!has_safetensors(folder)) return DType::kBF16;
  const Checkpoint checkpoint = Checkpoint::open(folder);
  for (const auto& [name, tensor] : checkpoint.tensors())
    if (tensor.shape.size() == 2)
      return tensor.type == StorageType::kF32   ? DType::kF32
             : tensor.type == StorageType::kF16 ? DType::kF16
                                                : DType::kBF16;
  return DType::kBF16;
}

ModelConfig read_folder(const fs::path& folder) {
  const fs::path file = folder / "config.json";
  const json::object object = read_json_object(file);
  const JsonFields fields(object, file.string());
  ModelConfig config;
  config.name = display_name(folder);
  config.architecture = architecture_of(fields);
  const Family* family = find_family(config.architecture);
  TANDEM_REQUIRE(family != nullptr, file.string(), ": architecture ", config.architecture,
                 " is not supported; Tandem knows ", known_list());
  refuse_quantization(fields);
  read_shape(fields, config);
  config.activation = activation_of(fields);
  config.tied_embeddings = fields.flag_or("tie_word_embeddings", family->tied_by_default);
  const std::string dtype = fields.text_or("dtype", fields.text_or("torch_dtype", ""));
  config.dtype = dtype.empty() ? checkpoint_dtype(folder) : dtype_of(fields, dtype);
  family->apply(fields, config);
  read_generation(fields, config);
  const fs::path generation = folder / "generation_config.json";
  std::error_code error;
  if (fs::exists(generation, error)) {
    const json::object defaults = read_json_object(generation);
    read_generation(JsonFields(defaults, generation.string()), config);
  }
  return config;
}

}  // namespace

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const Family& family : families()) names.emplace_back(family.architecture);
  return names;
}

ModelConfig read_model_config(const fs::path& path) {
  std::error_code error;
  if (is_gguf(path)) return read_gguf_config(path);
  TANDEM_REQUIRE(fs::is_directory(path, error), "there is no model folder ", path.string(),
                 ": give --model a Hugging Face folder or a .gguf file");
  return read_folder(path);
}

std::int64_t ModelConfig::num_parameters() const {
  std::int64_t total = 0;
  for (const NamedShape& tensor : TensorNames(*this).all()) total += tensor.num_elements();
  return total;
}

}  // namespace tandem::runtime
