// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "kernels/cpu/gumbel.h"
#include "kernels/device/cpu/context.h"
#include "kernels/sample.h"

namespace tandem::kernels {
namespace {

/// Better value, or the lower id at equal value; NaN never wins.
bool better(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

}  // namespace

void best_of_shard(Context<Cpu>&, const ShardArgs<Cpu>& args, Candidate* best) {
#pragma omp parallel for if (args.samples.num_samples > 1)
  for (std::int32_t i = 0; i < args.samples.num_samples; ++i) {
    const SlotParams& params = args.slots.params[args.samples.slots[i]];
    const std::int32_t position = args.positions[args.samples.rows[i]] + 1;
    const float* logits = args.logits.row(i);
    const auto begin = static_cast<std::int32_t>(args.vocab_begin);
    const auto columns = static_cast<std::int32_t>(
        std::min<std::int64_t>(args.logits.cols, args.vocab_size - args.vocab_begin));
    Candidate winner{-std::numeric_limits<float>::infinity(),
                     std::numeric_limits<std::int32_t>::max()};
    for (std::int32_t j = 0; j < columns; ++j) {
      float value = logits[j];
      if (params.temperature > 0.0f) {
        value /= params.temperature;
        // The noise is costly; a logit that even the largest noise cannot lift is passed over.
        if (value + kMaxGumbel < winner.value) continue;
        value += cpu::gumbel(token_word(params.seed, position, begin + j));
      }
      const Candidate candidate{value, begin + j};
      if (better(candidate, winner)) winner = candidate;
    }
    best[i] = winner;
  }
}

void pick_best(Context<Cpu>&, const Candidate* best, int ranks, int num_samples,
               std::int32_t* tokens) {
  for (int i = 0; i < num_samples; ++i) {
    Candidate winner = best[i];
    for (int rank = 1; rank < ranks; ++rank)
      if (better(best[rank * num_samples + i], winner)) winner = best[rank * num_samples + i];
    tokens[i] = winner.id;
  }
}

}  // namespace tandem::kernels
