// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights/dummy_weights.h"

#include <cmath>

#include "runtime/weights/tensor_names.h"

namespace tandem::runtime {
namespace {

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;

/// The finaliser of SplitMix64 (Steele, Lea and Flood 2014,
/// https://doi.org/10.1145/2714064.2660195).
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::uint64_t hash(std::uint64_t seed, std::string_view name) {
  std::uint64_t state = mix(seed + kGolden);
  for (char c : name) state = mix(state + kGolden + static_cast<unsigned char>(c));
  return state;
}

TensorEntry describe(const NamedShape& tensor, const ModelConfig& config, std::uint64_t seed) {
  TensorEntry entry;
  entry.type = StorageType::kDummy;
  entry.shape = tensor.shape;
  entry.seed = hash(seed, tensor.name);
  if (tensor.shape.size() == 2) {
    // Uniform on (-s, s) has variance s^2 / 3.
    entry.dummy_scale = std::sqrt(3.0f / static_cast<float>(tensor.shape[1]));
  } else if (tensor.name.ends_with(".bias")) {
    entry.dummy_scale = 0.02f;
  } else {
    entry.dummy_mean = config.norm_plus_one ? 0.0f : 1.0f;
    entry.dummy_scale = 0.1f;
  }
  return entry;
}

}  // namespace

TensorMap dummy_tensors(const ModelConfig& config, std::uint64_t seed) {
  TensorMap out;
  for (const NamedShape& tensor : TensorNames(config).all())
    out[tensor.name] = describe(tensor, config, seed);
  return out;
}

void dummy_values(const TensorEntry& entry, std::int64_t first, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t bits =
        mix(entry.seed + kGolden * static_cast<std::uint64_t>(first + i + 1));
    // 24 bits -> odd multiples of 2^-24 in (-1, 1).
    const float uniform =
        static_cast<float>(2 * static_cast<std::int64_t>(bits >> 40) + 1 - (1 << 24)) * 0x1p-24f;
    out[i] = entry.dummy_mean + entry.dummy_scale * uniform;
  }
}

}  // namespace tandem::runtime
