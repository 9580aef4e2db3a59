// SPDX-License-Identifier: Apache-2.0
// A token and its value as one 64-bit number that orders as sampling does: the larger value first,
// at equal values the lower id. So the best of a row is a maximum, which threads, blocks and ranks
// may take in any order. The same arithmetic is compiled for the CPU and for CUDA. Stateless.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace tandem::kernels {

struct Candidate {
  float value = 0;
  std::int32_t id = 0;
};

/// Larger is better; no two tokens of a row have the same. 0: nothing was looked at yet.
using TokenKey = unsigned long long;  // what CUDA's 64-bit atomics take

/// NaN has no place: test before.
constexpr TokenKey token_key(float value, std::int32_t id) {
  const auto bits = std::bit_cast<std::uint32_t>(value + 0.0f);  // -0 becomes +0
  const std::uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<TokenKey>(ordered) << 32 | (0xffffffffu - static_cast<std::uint32_t>(id));
}
constexpr Candidate candidate_of(TokenKey key) {
  const auto ordered = static_cast<std::uint32_t>(key >> 32);
  const std::uint32_t bits = (ordered & 0x80000000u) != 0 ? ordered ^ 0x80000000u : ~ordered;
  return {std::bit_cast<float>(bits),
          static_cast<std::int32_t>(0xffffffffu - static_cast<std::uint32_t>(key))};
}
/// Below every token's key: what a row of nothing but NaN gives.
constexpr TokenKey no_token() {
  return token_key(-std::numeric_limits<float>::infinity(),
                   std::numeric_limits<std::int32_t>::max());
}

}  // namespace tandem::kernels
