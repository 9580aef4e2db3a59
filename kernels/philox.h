// SPDX-License-Identifier: Apache-2.0
// Counter-based random words: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers:
// as easy as 1, 2, 3, SC 2011). The same plain arithmetic is compiled for the CPU and for CUDA, so
// both devices draw the same bits. Stateless.
#pragma once

#include <cstdint>

namespace tandem::kernels {

struct PhiloxBlock {
  std::uint32_t word[4];
};

constexpr PhiloxBlock philox(std::uint64_t key, std::uint32_t c0, std::uint32_t c1,
                             std::uint32_t c2 = 0, std::uint32_t c3 = 0) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key);
  std::uint32_t k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2;
    const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const std::uint32_t n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// The random word of one token at one position of one sample: 4 tokens share a block.
constexpr std::uint32_t token_word(std::uint64_t seed, std::int32_t position, std::int32_t token) {
  return philox(seed, static_cast<std::uint32_t>(token) >> 2, static_cast<std::uint32_t>(position))
      .word[token & 3];
}

/// Largest Gumbel value that a 32-bit word can give; bounds a search for the best token.
inline constexpr float kMaxGumbel = 23.0f;

/// A word as a uniform number in (0, 1), precise near 0.
constexpr float unit_interval(std::uint32_t word) {
  return (static_cast<float>(word) + 0.5f) * 2.3283064365386963e-10f;
}

}  // namespace tandem::kernels
