// SPDX-License-Identifier: Apache-2.0
// One step, decided by rank 0 and carried out by every rank: who decodes, what is prefilled, what
// is sampled, and each change of slots, chunk tables and cache size. Chunk numbers are global,
// chunk bytes are per rank. A plan is made without the tokens of the step before it. Edits are
// applied before the step's rows run: growth, inits, assigns, chunk copies. Plain values;
// `serialize` and `deserialize` are exact inverses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/step_view.h"

namespace tandem::runtime {

/// A sequence takes a slot (admission, fork, or resumption after preemption): done flag cleared,
/// length = history.size().
struct SlotInit {
  std::int32_t slot = 0;
  kernels::SlotParams params;
  std::vector<std::pair<std::int32_t, float>> logit_bias;  ///< (token id, added value)
  std::vector<std::int32_t> allowed;                 ///< Not empty: every other token is forbidden.
  std::vector<std::vector<std::int32_t>> bad_words;  ///< Of two tokens or more.
  std::vector<std::int32_t> history;  ///< Tokens already in the cache (prefix hit), by position.

  bool operator==(const SlotInit& other) const;
};

/// Chunk `chunk` becomes number `index` of the slot's chunk list.
struct ChunkAssign {
  std::int32_t slot = 0, index = 0, chunk = 0;
  bool operator==(const ChunkAssign&) const = default;
};

/// Chunk `from` is copied to chunk `to` before the step (the last partial chunk of a fork).
struct ChunkCopy {
  std::int32_t from = 0, to = 0;
  bool operator==(const ChunkCopy&) const = default;
};

/// A run of prompt tokens of one sequence.
struct PrefillSegment {
  std::int32_t slot = 0;
  std::int32_t begin = 0;  ///< Position of the first token.
  std::vector<std::int32_t> tokens;
  bool sample = false;  ///< The last token's logits are sampled.
  /// Row `score_begin` + i gets the log-probabilities of token `score_targets[i]` (the prompt's
  /// next one) and of the largest.
  std::int32_t score_begin = 0;
  std::vector<std::int32_t> score_targets;
  bool operator==(const PrefillSegment&) const = default;
};

/// How the sampled rows of the whole step are chosen (`kernels/sample.h`).
enum class SampleMode : std::uint8_t { kBest, kFull };

struct BatchPlan {
  std::int64_t step = 0;
  bool stop = false;               ///< Leave the step loop; nothing else counts.
  std::int32_t mapped_chunks = 0;  ///< The cache holds at least this many chunks from now on.
  std::vector<SlotInit> inits;
  std::vector<ChunkAssign> assigns;
  std::vector<ChunkCopy> chunk_copies;
  std::vector<std::int32_t> decode_slots;  ///< One decode row each.
  std::vector<PrefillSegment> segments;
  SampleMode sample_mode = SampleMode::kBest;
  bool process_logits = false;     ///< Some row has penalties, bias, bans or min tokens.
  bool logprobs = false;           ///< Implies kFull.
  std::int32_t max_kv_tokens = 0;  ///< Longest KV of any row in this step.

  std::int32_t num_prefill_tokens() const;
  std::int32_t num_tokens() const {
    return static_cast<std::int32_t>(decode_slots.size()) + num_prefill_tokens();
  }
  /// Decode rows, then the segments that sample.
  std::int32_t num_samples() const;
  std::int32_t num_scores() const;  ///< Rows that are scored.

  bool operator==(const BatchPlan&) const = default;
};

std::vector<std::byte> serialize(const BatchPlan& plan);

/// InternalError when the bytes are not what `serialize` makes; never reads past them, and never
/// reserves more than they could fill.
BatchPlan deserialize(std::span<const std::byte> bytes);

}  // namespace tandem::runtime
