// SPDX-License-Identifier: Apache-2.0
// Each family's fixture, rewritten as llama.cpp's conversion would write it (names, row order, norm
// offsets, metadata), is the same model: a plain decoder gives the same logits from both.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/weights/checkpoint.h"
#include "runtime/weights/gguf_config.h"
#include "tests/support/model_files.h"
#include "tests/support/plain_decoder.h"
#include "tests/support/temporary_folder.h"

namespace tandem::runtime {
namespace {

namespace fs = std::filesystem;
using namespace tandem::testing;

struct Conversion {
  const char* fixture;
  const char* architecture;
  bool permuted;
  /// Metadata beyond the shape.
  std::function<void(GgufBuilder&, const ModelConfig&)> metadata = nullptr;
  /// What the GGUF file cannot say, changed in the original.
  std::function<void(ModelConfig&)> adapt = nullptr;
};

std::string gguf_name(std::string name, const ModelConfig& config) {
  if (name == "model.embed_tokens.weight") return "token_embd.weight";
  if (name == "model.norm.weight") return "output_norm.weight";
  if (name == "lm_head.weight") return "output.weight";
  const std::vector<std::pair<std::string, std::string>> parts = {
      {"model.layers.", "blk."},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.qkv_proj", "attn_qkv"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"mlp.gate_up_proj", "ffn_up"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
      {"input_layernorm", "attn_norm"},
      {"pre_feedforward_layernorm", "ffn_norm"},
      {"post_feedforward_layernorm", "post_ffw_norm"},
      {"post_attention_layernorm", config.post_norm ? "post_attention_norm" : "ffn_norm"}};
  for (const auto& [from, to] : parts)
    if (const auto at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
  return name;
}

void add_tensor(GgufBuilder& builder, const std::string& name, const TensorEntry& entry,
                const Checkpoint& from, const ModelConfig& config, bool permuted) {
  const bool vector = entry.shape.size() == 1;
  const std::int64_t rows = vector ? 1 : entry.shape[0], cols = entry.shape.back();
  std::vector<float> values(static_cast<std::size_t>(rows * cols));
  from.read(entry, 0, rows, 0, cols, values.data(), cols);
  if (vector && config.norm_plus_one)
    for (float& value : values) value += 1.0f;
  const bool is_q = name.find("q_proj.") != std::string::npos;
  const bool is_k = name.find("k_proj.") != std::string::npos;
  if (permuted && (is_q || is_k)) {
    const std::int64_t dim = config.head_dim, width = vector ? 1 : cols;
    const std::vector<float> original = values;
    for (std::int64_t row = 0; row < entry.shape[0]; ++row) {
      const std::int64_t within = row % dim;
      const std::int64_t stored = row - within + 2 * (within % (dim / 2)) + within / (dim / 2);
      std::copy_n(original.begin() + row * width, width, values.begin() + stored * width);
    }
  }
  std::vector<std::uint64_t> extents{static_cast<std::uint64_t>(cols)};
  if (!vector) extents.push_back(static_cast<std::uint64_t>(rows));
  builder.tensor(gguf_name(name, config), extents, 0, bytes_of(values));
}

GgufBuilder convert(const Conversion& conversion, const ModelConfig& config,
                    const Checkpoint& from) {
  GgufBuilder out;
  const auto u32 = [&](const char* key, std::int64_t value) {
    out.u32(concat(conversion.architecture, ".", key), static_cast<std::uint32_t>(value));
  };
  out.string("general.architecture", conversion.architecture);
  u32("block_count", config.num_layers());
  u32("embedding_length", config.hidden_size);
  u32("feed_forward_length", config.intermediate_size);
  u32("attention.head_count", config.num_heads);
  u32("attention.head_count_kv", config.num_kv_heads);
  u32("attention.key_length", config.head_dim);
  u32("context_length", config.max_position);
  const std::string prefix = concat(conversion.architecture, ".");
  out.f32(prefix + "attention.layer_norm_rms_epsilon", config.norm_eps);
  out.f32(prefix + "rope.freq_base", static_cast<float>(config.ropes[0].theta));
  if (conversion.metadata) conversion.metadata(out, config);
  for (const auto& [name, entry] : from.tensors())
    add_tensor(out, name, entry, from, config, conversion.permuted);
  return out;
}

void window(GgufBuilder& out, const char* architecture, std::uint32_t tokens) {
  out.u32(concat(architecture, ".attention.sliding_window"), tokens);
}

std::string factors(const std::vector<double>& values) {
  return bytes_of(std::vector<float>(values.begin(), values.end()));
}

void add_factors(GgufBuilder& out, const std::string& name, const std::vector<double>& values) {
  out.tensor(name, {values.size()}, 0, factors(values));
}

/// The factors per frequency that llama3 scaling comes down to.
void add_llama3_factors(GgufBuilder& out, const ModelConfig& config) {
  const RopeConfig& rope = config.ropes[0];
  std::vector<double> values;
  for (int i = 0; i < rope.rotary_dim / 2; ++i) {
    const double wavelength = 2 * M_PI * std::pow(rope.theta, 2.0 * i / rope.rotary_dim);
    const double turns = static_cast<double>(rope.original_max_position) / wavelength;
    const double smooth = std::clamp(
        (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0, 1.0);
    values.push_back(1.0 / ((1 - smooth) / rope.factor + smooth));
  }
  add_factors(out, "rope_freqs.weight", values);
}

std::vector<Conversion> conversions() {
  const auto gemma_scale = [](ModelConfig& c) { c.attention_scale = 0; };
  return {
      {"llama-9q3kv", "llama", true},
      {"llama-14q2kv", "llama", true, add_llama3_factors},
      {"llama-yarn", "llama", true,
       [](GgufBuilder& out, const ModelConfig&) {
         out.string("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", 8.0f);
         out.u32("llama.rope.scaling.original_context_length", 32);
       }},
      {"mistral", "llama", true, nullptr,
       [](ModelConfig& c) {
         for (LayerConfig& layer : c.layers) layer.sliding_window = 0;
       }},
      {"qwen2", "qwen2", false, nullptr,
       [](ModelConfig& c) {
         for (LayerConfig& layer : c.layers) layer.sliding_window = 0;
       }},
      {"qwen3", "qwen3", false},
      {"phi3", "phi3", false,
       [](GgufBuilder& out, const ModelConfig& c) {
         window(out, "phi3", 25);
         out.u32("phi3.rope.scaling.original_context_length", 4);
         out.f32("phi3.rope.scaling.attn_factor",
                 static_cast<float>(std::sqrt(1 + std::log(16.0) / std::log(4.0))));
         add_factors(out, "rope_factors_short.weight", c.ropes[0].short_factor);
         add_factors(out, "rope_factors_long.weight", c.ropes[0].long_factor);
       }},
      {"granite", "granite", true,
       [](GgufBuilder& out, const ModelConfig&) {
         out.f32("granite.embedding_scale", 1.5f).f32("granite.residual_scale", 0.7f);
         out.f32("granite.attention.scale", 0.2f).f32("granite.logit_scale", 0.8f);
       }},
      {"olmo2", "olmo2", false},
      {"gemma2", "gemma2", false,
       [](GgufBuilder& out, const ModelConfig&) {
         window(out, "gemma2", 9);
         out.f32("gemma2.attn_logit_softcapping", 4.0f);
         out.f32("gemma2.final_logit_softcapping", 12.0f);
       },
       gemma_scale},
      {"gemma3", "gemma3", false,
       [](GgufBuilder& out, const ModelConfig&) {
         window(out, "gemma3", 9);
         out.string("gemma3.rope.scaling.type", "linear").f32("gemma3.rope.scaling.factor", 4.0f);
         out.pair("gemma3.attention.sliding_window_pattern", 9,
                  bytes_of(7u) + bytes_of(std::uint64_t{3}) + std::string("\1\0\1", 3));
       },
       gemma_scale},
      {"smollm3", "smollm3", true, nullptr,
       [](ModelConfig& c) {
         for (LayerConfig& layer : c.layers) layer.rope = 0;
       }},
  };
}

class GgufFamilies : public ::testing::TestWithParam<Conversion> {};

TEST_P(GgufFamilies, TheConvertedModelIsTheSame) {
  const Conversion& conversion = GetParam();
  const fs::path folder = fs::path(TANDEM_FIXTURES) / "models" / conversion.fixture;
  ModelConfig config = read_model_config(folder);
  const Checkpoint original = Checkpoint::open(folder);
  const TemporaryFolder temporary;
  const fs::path file = temporary.path() / "m.gguf";
  write_file(file, convert(conversion, config, original).bytes());
  const ModelConfig converted_config = read_model_config(file);
  const Checkpoint converted = Checkpoint::open(file);
  converted.require_fits(converted_config);
  if (conversion.adapt) conversion.adapt(config);
  EXPECT_EQ(converted_config.num_parameters(), config.num_parameters());
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < 30; ++i) tokens.push_back((i * 37 + 5) % 300);
  const auto expected = plain_logits(config, original, tokens);
  const auto actual = plain_logits(converted_config, converted, tokens);
  for (std::size_t i = 0; i < expected.size(); ++i)
    for (std::size_t k = 0; k < expected[i].size(); ++k)
      ASSERT_NEAR(actual[i][k], expected[i][k], 2e-3f) << "position " << i << " token " << k;
}

INSTANTIATE_TEST_SUITE_P(All, GgufFamilies, ::testing::ValuesIn(conversions()),
                         [](const auto& item) {
                           std::string name = item.param.fixture;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(GgufSmolLM3, SkipsEveryFourthRotation) {
  const fs::path folder = fs::path(TANDEM_FIXTURES) / "models" / "smollm3";
  ModelConfig config = read_model_config(folder);
  config.layers.resize(9);
  const std::string bytes =
      convert({"smollm3", "smollm3", true}, config, Checkpoint::open(folder)).bytes();
  const ModelConfig read = gguf_config(GgufFile(std::make_shared<const MappedFile>(
      "x.gguf", std::as_bytes(std::span(bytes.data(), bytes.size())))));
  for (std::size_t i = 0; i < 9; ++i)
    EXPECT_EQ(read.layers[i].rope, i == 3 || i == 7 ? -1 : 0) << i;
}

/// Two parts; each names the number of parts, the first also the number of all tensors.
TEST(SplitGguf, PartsAreOneModelAndEachFaultIsNamed) {
  const auto part = [](std::uint16_t number, std::int32_t total) {
    GgufBuilder out;
    out.pair("split.no", 2, bytes_of(number)).pair("split.count", 2, bytes_of(std::uint16_t{2}));
    out.pair("split.tensors.count", 5, bytes_of(total));
    return out.tensor(concat("t", number), {1}, 0, bytes_of(static_cast<float>(number + 1)));
  };
  const TemporaryFolder folder;
  const fs::path first = folder.path() / "m-00001-of-00002.gguf";
  const fs::path second = folder.path() / "m-00002-of-00002.gguf";
  const auto error = [](const fs::path& path) {
    return config_error([&] { GgufFile file(path); });
  };
  write_file(first, part(0, 2).bytes());
  EXPECT_NE(error(first).find("there is no " + second.string()), std::string::npos);
  write_file(second, part(1, 2).bytes());
  const GgufFile whole(first);
  ASSERT_EQ(whole.tensors().size(), 2u);
  EXPECT_EQ(whole.files().size(), 2u);
  float value = 0;
  std::memcpy(&value, whole.find_tensor("t1")->data, sizeof value);
  EXPECT_EQ(value, 2.0f);
  EXPECT_NE(error(second).find("not named as the first"), std::string::npos) << error(second);
  write_file(second, part(0, 2).bytes());
  EXPECT_NE(error(first).find("is not the part that its name says"), std::string::npos);
  write_file(first, part(0, 3).bytes());
  write_file(second, part(1, 3).bytes());
  EXPECT_NE(error(first).find("hold 2 tensors"), std::string::npos) << error(first);
}

}  // namespace
}  // namespace tandem::runtime
