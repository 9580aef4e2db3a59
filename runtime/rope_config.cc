// SPDX-License-Identifier: Apache-2.0
#include "runtime/rope_config.h"

#include <cmath>

#include "kernels/device/error.h"
#include "runtime/model_limits.h"

namespace tandem::runtime {
namespace json = boost::json;
namespace {

constexpr double kMaxFactor = 1e6;

RopeScaling scaling_of(const JsonFields& rope) {
  const std::string type = rope.text_or("rope_type", rope.text_or("type", "default"));
  if (type == "default") return RopeScaling::kNone;
  if (type == "linear") return RopeScaling::kLinear;
  if (type == "llama3") return RopeScaling::kLlama3;
  if (type == "dynamic") return RopeScaling::kDynamic;
  if (type == "yarn") return RopeScaling::kYarn;
  if (type == "longrope" || type == "su") return RopeScaling::kLongRope;
  throw ConfigError(concat(rope.where(), ": rope type \"", type,
                           "\" is not supported; Tandem knows default, linear, llama3, dynamic, "
                           "yarn and longrope"));
}

std::vector<double> factors(const JsonFields& rope, std::string_view key, int count) {
  const json::array* list = rope.list(key);
  const std::string expected = concat("a list of ", count, " positive numbers");
  if (list == nullptr || list->size() != static_cast<std::size_t>(count)) rope.wrong(key, expected);
  std::vector<double> values;
  for (const json::value& item : *list) {
    const double value = item.is_number() ? item.to_number<double>() : 0.0;
    if (!(value > 0.0 && value < kMaxFactor)) rope.wrong(key, expected);
    values.push_back(value);
  }
  return values;
}

void read_yarn(const JsonFields& rope, RopeConfig& out) {
  out.beta_fast = rope.number_or("beta_fast", 1e-3, 1e6, 32.0);
  out.beta_slow = rope.number_or("beta_slow", 1e-3, 1e6, 1.0);
  out.mscale = rope.number_or("mscale", 0.0, 1e3, 0.0);
  out.mscale_all_dim = rope.number_or("mscale_all_dim", 0.0, 1e3, 0.0);
  out.truncate = rope.flag_or("truncate", true);
}

void read_scaling(const JsonFields& config, const JsonFields& rope, std::int64_t max_position,
                  RopeConfig& out) {
  // Phi-3 keeps the trained length beside the rope object; there it wins.
  out.original_max_position = config.integer_or(
      "original_max_position_embeddings", 2, kMaxPositions,
      rope.integer_or("original_max_position_embeddings", 2, kMaxPositions, max_position));
  const double ratio =
      static_cast<double>(max_position) / static_cast<double>(out.original_max_position);
  const bool derived = out.scaling == RopeScaling::kYarn || out.scaling == RopeScaling::kLongRope;
  out.factor = derived ? rope.number_or("factor", 1e-3, kMaxFactor, ratio)
                       : rope.number("factor", 1e-3, kMaxFactor);
  out.attention_factor = rope.number_or("attention_factor", 0.0, kMaxFactor, 0.0);
  if (out.scaling == RopeScaling::kDynamic) out.original_max_position = max_position;
  if (out.scaling == RopeScaling::kLlama3) {
    out.low_freq_factor = rope.number("low_freq_factor", 1e-3, kMaxFactor);
    out.high_freq_factor = rope.number("high_freq_factor", 1e-3, kMaxFactor);
    if (out.high_freq_factor <= out.low_freq_factor)
      rope.wrong("high_freq_factor", "larger than low_freq_factor");
  }
  if (out.scaling == RopeScaling::kYarn) read_yarn(rope, out);
  if (out.scaling == RopeScaling::kLongRope) {
    out.short_factor = factors(rope, "short_factor", out.rotary_dim / 2);
    out.long_factor = factors(rope, "long_factor", out.rotary_dim / 2);
  }
}

}  // namespace

const json::object* rope_parameters(const JsonFields& config) {
  const json::object* scaling = config.nested("rope_scaling");
  return scaling != nullptr ? scaling : config.nested("rope_parameters");
}

RopeConfig read_rope(const JsonFields& config, const json::object* parameters, double default_theta,
                     std::int64_t head_dim, std::int64_t max_position) {
  const json::object empty;
  const JsonFields rope(parameters == nullptr ? empty : *parameters, config.where());
  RopeConfig out;
  out.theta = rope.number_or("rope_theta", 1.0001, 1e12,
                             config.number_or("rope_theta", 1.0001, 1e12, default_theta));
  const double partial = rope.number_or("partial_rotary_factor", 0.0, 1.0,
                                        config.number_or("partial_rotary_factor", 0.0, 1.0, 1.0));
  out.rotary_dim = static_cast<int>(static_cast<double>(head_dim) * partial);
  if (out.rotary_dim < 2 || out.rotary_dim % 2 != 0)
    config.wrong("partial_rotary_factor",
                 concat("a share of head_dim ", head_dim, " that gives an even number of dims"));
  out.scaling = scaling_of(rope);
  if (out.scaling == RopeScaling::kDynamic && out.rotary_dim < 4)
    config.wrong("head_dim", "at least 4 for dynamic rope scaling");
  if (out.scaling != RopeScaling::kNone) read_scaling(config, rope, max_position, out);
  return out;
}

}  // namespace tandem::runtime
