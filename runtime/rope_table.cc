// SPDX-License-Identifier: Apache-2.0
#include "runtime/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/device/error.h"

namespace tandem::runtime {
namespace {

constexpr float kTwoPi = static_cast<float>(2 * std::numbers::pi);

/// theta^(2 i / rotary_dim) for each pair, in float as transformers computes it.
std::vector<float> wavelengths(double theta, int rotary_dim) {
  std::vector<float> values(static_cast<std::size_t>(rotary_dim / 2));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::pow(static_cast<float>(theta),
                         static_cast<float>(2 * i) / static_cast<float>(rotary_dim));
  return values;
}

/// Low frequencies are divided by `factor`, high ones kept, with a ramp in between.
float llama3_frequency(const RopeConfig& config, float inverse) {
  const auto length = static_cast<float>(config.original_max_position);
  const auto factor = static_cast<float>(config.factor);
  const auto low = static_cast<float>(config.low_freq_factor);
  const auto high = static_cast<float>(config.high_freq_factor);
  const float wavelength = kTwoPi / inverse;
  if (wavelength < length / high) return inverse;
  if (wavelength > length / low) return inverse / factor;
  const float smooth = (length / wavelength - low) / (high - low);
  return (1 - smooth) * inverse / factor + smooth * inverse;
}

double yarn_magnitude(double scale, double mscale) {
  return scale <= 1 ? 1.0 : 0.1 * mscale * std::log(scale) + 1.0;
}

float yarn_attention_scaling(const RopeConfig& config) {
  if (config.attention_factor > 0) return static_cast<float>(config.attention_factor);
  if (config.mscale > 0 && config.mscale_all_dim > 0)
    return static_cast<float>(yarn_magnitude(config.factor, config.mscale) /
                              yarn_magnitude(config.factor, config.mscale_all_dim));
  return static_cast<float>(yarn_magnitude(config.factor, 1.0));
}

/// The dim whose pair turns `rotations` times over the trained length.
double yarn_correction_dim(const RopeConfig& config, double rotations) {
  return config.rotary_dim *
         std::log(static_cast<double>(config.original_max_position) /
                  (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(config.theta));
}

RopeFrequencies yarn(const RopeConfig& config) {
  double low = yarn_correction_dim(config, config.beta_fast);
  double high = yarn_correction_dim(config, config.beta_slow);
  if (config.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, config.rotary_dim - 1.0);
  if (low == high) high += 0.001;
  RopeFrequencies out{wavelengths(config.theta, config.rotary_dim), yarn_attention_scaling(config)};
  const auto factor = static_cast<float>(config.factor);
  for (std::size_t i = 0; i < out.inverse.size(); ++i) {
    const float ramp = std::clamp(
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f,
        1.0f);
    const float extrapolated = 1 - ramp;
    out.inverse[i] =
        1 / (factor * out.inverse[i]) * (1 - extrapolated) + 1 / out.inverse[i] * extrapolated;
  }
  return out;
}

RopeFrequencies longrope(const RopeConfig& config, std::int64_t length) {
  const bool is_long = length > config.original_max_position;
  const std::vector<double>& factors = is_long ? config.long_factor : config.short_factor;
  RopeFrequencies out{wavelengths(config.theta, config.rotary_dim), 1.0f};
  TANDEM_ASSERT(factors.size() == out.inverse.size(), "longrope factors do not fit rotary_dim");
  for (std::size_t i = 0; i < factors.size(); ++i)
    out.inverse[i] = 1 / (static_cast<float>(factors[i]) * out.inverse[i]);
  if (config.attention_factor > 0) {
    out.attention_scaling = static_cast<float>(config.attention_factor);
  } else if (config.factor > 1) {
    out.attention_scaling = static_cast<float>(std::sqrt(
        1 + std::log(config.factor) / std::log(static_cast<double>(config.original_max_position))));
  }
  return out;
}

/// NTK-aware scaling: the base grows with the length beyond the trained one.
double dynamic_theta(const RopeConfig& config, std::int64_t length) {
  const auto trained = static_cast<double>(config.original_max_position);
  const double longest = std::max(static_cast<double>(length), trained);
  return config.theta * std::pow(config.factor * longest / trained - (config.factor - 1),
                                 config.rotary_dim / (config.rotary_dim - 2.0));
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeConfig& config, std::int64_t length) {
  if (config.scaling == RopeScaling::kYarn) return yarn(config);
  if (config.scaling == RopeScaling::kLongRope) return longrope(config, length);
  const double theta =
      config.scaling == RopeScaling::kDynamic ? dynamic_theta(config, length) : config.theta;
  RopeFrequencies out{wavelengths(theta, config.rotary_dim), 1.0f};
  for (float& value : out.inverse) {
    value = 1 / value;
    if (config.scaling == RopeScaling::kLinear) value /= static_cast<float>(config.factor);
    if (config.scaling == RopeScaling::kLlama3) value = llama3_frequency(config, value);
  }
  return out;
}

HostRopeTable make_rope_table(const RopeConfig& config, std::int64_t max_position) {
  const RopeFrequencies frequencies = rope_frequencies(config, max_position);
  HostRopeTable table;
  table.cos.reserve(frequencies.inverse.size() * static_cast<std::size_t>(max_position));
  table.sin.reserve(table.cos.capacity());
  for (std::int64_t position = 0; position < max_position; ++position) {
    for (float inverse : frequencies.inverse) {
      const float angle = static_cast<float>(position) * inverse;
      table.cos.push_back(std::cos(angle) * frequencies.attention_scaling);
      table.sin.push_back(std::sin(angle) * frequencies.attention_scaling);
    }
  }
  return table;
}

}  // namespace tandem::runtime
