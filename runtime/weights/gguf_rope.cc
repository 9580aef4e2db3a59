// SPDX-License-Identifier: Apache-2.0
// Rotary embeddings of GGUF files: metadata keys, or tensors of factors.
#include <cmath>
#include <cstring>

#include "kernels/device/error.h"
#include "runtime/model_limits.h"
#include "runtime/weights/gguf_families.h"

namespace tandem::runtime {
namespace {

constexpr double kMaxFactor = 1e6;

std::vector<double> factors(const GgufFile& file, std::string_view name, int count) {
  const TensorEntry* tensor = file.find_tensor(name);
  TANDEM_REQUIRE(tensor != nullptr && tensor->type == StorageType::kF32 &&
                     tensor->shape == std::vector<std::int64_t>{count},
                 file.path(), ": tensor ", name, " must hold ", count,
                 " F32 values; the file is damaged, download it again");
  std::vector<float> values(static_cast<std::size_t>(count));
  std::memcpy(values.data(), tensor->data, values.size() * sizeof(float));
  for (float value : values)
    TANDEM_REQUIRE(value > 0 && value < static_cast<float>(kMaxFactor), file.path(), ": tensor ",
                   name, " must hold positive factors; the file is damaged, download it again");
  return {values.begin(), values.end()};
}

/// Factors per frequency: llama3 scaling has one list, longrope a short and a long one.
bool read_factor_tensors(const GgufFile& file, const GgufKeys& key, RopeConfig& rope) {
  const int count = rope.rotary_dim / 2;
  if (file.find_tensor("rope_freqs.weight") != nullptr) {
    rope.short_factor = rope.long_factor = factors(file, "rope_freqs.weight", count);
    rope.attention_factor = 1.0;
  } else if (file.find_tensor("rope_factors_long.weight") != nullptr) {
    rope.short_factor = factors(file, "rope_factors_short.weight", count);
    rope.long_factor = factors(file, "rope_factors_long.weight", count);
    rope.attention_factor = file.number_or(key("rope.scaling.attn_factor"), 1e-3, kMaxFactor, 1.0);
  } else {
    return false;
  }
  rope.scaling = RopeScaling::kLongRope;
  return true;
}

void read_yarn(const GgufFile& file, const GgufKeys& key, RopeConfig& rope) {
  rope.scaling = RopeScaling::kYarn;
  rope.beta_fast = file.number_or(key("rope.scaling.yarn_beta_fast"), 1e-3, 1e6, 32.0);
  rope.beta_slow = file.number_or(key("rope.scaling.yarn_beta_slow"), 1e-3, 1e6, 1.0);
}

}  // namespace

RopeConfig gguf_rope(const GgufFile& file, const GgufKeys& key, const ModelConfig& config) {
  RopeConfig rope;
  rope.theta = file.number_or(key("rope.freq_base"), 1.0001, 1e12, 10000.0);
  rope.rotary_dim = static_cast<int>(
      file.integer_or(key("rope.dimension_count"), 2, config.head_dim, config.head_dim));
  TANDEM_REQUIRE(rope.rotary_dim % 2 == 0, file.path(), ": ", key("rope.dimension_count"),
                 " is odd; the file is damaged, download it again");
  rope.original_max_position = file.integer_or(key("rope.scaling.original_context_length"), 2,
                                               kMaxPositions, config.max_position);
  if (read_factor_tensors(file, key, rope)) return rope;
  const std::string type = file.text_if(key("rope.scaling.type")).value_or("none");
  if (type == "none") return rope;
  rope.factor = file.number(key("rope.scaling.factor"), 1e-3, kMaxFactor);
  if (type == "yarn") {
    read_yarn(file, key, rope);
    return rope;
  }
  TANDEM_REQUIRE(type == "linear", file.path(), ": rope scaling ", type,
                 " is not supported in GGUF files; use the safetensors checkpoint");
  rope.scaling = RopeScaling::kLinear;
  return rope;
}

}  // namespace tandem::runtime
