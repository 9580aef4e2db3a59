// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/gumbel.h"
#include "kernels/cpu/vec.h"
#include "kernels/device/cpu/context.h"
#include "kernels/sample.h"

namespace tandem::kernels {
namespace {

/// Better value, or the lower id at equal value; NaN never wins.
bool better(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

constexpr std::int32_t kNone = std::numeric_limits<std::int32_t>::max();
/// Logits that are passed over together.
constexpr std::int32_t kBlock = 64;

/// Of `kBlock` logits; NaN counts as the least.
float largest(const float* logits) {
  cpu::Floats most = cpu::splat(-std::numeric_limits<float>::infinity());
  for (std::int32_t i = 0; i < kBlock; i += cpu::kFloats) {
    const auto value = cpu::load<cpu::Floats>(logits + i);
    most = value > most ? value : most;
  }
  float all = most[0];
  for (int i = 1; i < cpu::kFloats; ++i) all = std::max(all, most[i]);
  return all;
}

/// The best of one row's logits, whose ids count from `begin`.
Candidate best_of_row(const SlotParams& params, std::int32_t position, std::int32_t begin,
                      const float* logits, std::int32_t columns) {
  const bool greedy = params.temperature <= 0.0f;
  const auto before_noise = [&](float logit) {
    return greedy ? logit : logit / params.temperature;
  };
  // The noise is costly: logits that even the largest noise cannot lift are passed over.
  const float most_noise = greedy ? 0.0f : kMaxGumbel;
  Candidate winner{-std::numeric_limits<float>::infinity(), kNone};
  for (std::int32_t block = 0; block < columns; block += kBlock) {
    const std::int32_t end = std::min(block + kBlock, columns);
    if (end - block == kBlock && winner.id != kNone &&
        before_noise(largest(logits + block)) + most_noise < winner.value)
      continue;
    for (std::int32_t j = block; j < end; ++j) {
      float value = before_noise(logits[j]);
      if (value + most_noise < winner.value) continue;
      if (!greedy) value += cpu::gumbel(token_word(params.seed, position, begin + j));
      const Candidate candidate{value, begin + j};
      if (better(candidate, winner)) winner = candidate;
    }
  }
  return winner;
}

}  // namespace

void best_of_shard(Context<Cpu>&, const ShardArgs<Cpu>& args, TokenKey* best) {
  const auto begin = static_cast<std::int32_t>(args.vocab_begin);
  const auto columns = static_cast<std::int32_t>(
      std::min<std::int64_t>(args.logits.cols, args.vocab_size - args.vocab_begin));
#pragma omp parallel for if (args.samples.num_samples > 1)
  for (std::int32_t i = 0; i < args.samples.num_samples; ++i) {
    const Candidate winner =
        best_of_row(args.slots.params[args.samples.slots[i]],
                    args.positions[args.samples.rows[i]] + 1, begin, args.logits.row(i), columns);
    best[i] = std::max(best[i], token_key(winner.value, winner.id));
  }
}

}  // namespace tandem::kernels
