// SPDX-License-Identifier: Apache-2.0
// One step's tokens, slots and KV cache as every op sees them: plain views, no ownership.
//
// A step is one token buffer: `num_decode` decode rows first (one per sequence), then the prefill
// segments, each a run of consecutive tokens of one sequence. A row's `position` is its index in
// its sequence, so its KV length is position + 1; a negative position marks an inert row (padding
// of a graph bucket, or a sequence that is done): ops write nothing for it but zeros to their
// output row, and the cache is not touched.
#pragma once

#include <cstdint>

#include "kernels/device/buffer.h"
#include "kernels/device/device.h"

namespace tandem::kernels {

inline constexpr int kChunkTokens = 64;  ///< Tokens of a KV chunk.
inline constexpr int kMaxStopIds = 16;

template <Device D>
struct StepView {
  std::int32_t num_tokens = 0;                  ///< Rows of every activation in this step.
  std::int32_t num_decode = 0;                  ///< Leading rows that are decode rows.
  std::int32_t num_segments = 0;                ///< Prefill segments.
  std::int32_t max_segment_tokens = 0;          ///< Longest segment; host-known, for grids.
  std::int32_t max_kv_tokens = 0;               ///< Upper bound of any row's KV length; host-known.
  const std::int32_t* token_ids = nullptr;      ///< [num_tokens]
  const std::int32_t* positions = nullptr;      ///< [num_tokens], negative: inert row
  const std::int32_t* slots = nullptr;          ///< [num_tokens] slot of the row's sequence
  const std::int32_t* segment_begin = nullptr;  ///< [num_segments + 1] first row of each segment
};

/// The paged cache of one rank: `[chunk][layer][k|v][head][kChunkTokens][head_dim]`. A sequence's
/// token p lives in chunk `chunk_table[slot * table_stride + p / 64]`, row p % 64.
template <typename T, Device D>
struct KvView {
  T* base = nullptr;
  std::int64_t chunk_stride = 0;  ///< Elements from one chunk to the next.
  std::int64_t layer_stride = 0;  ///< Elements from one layer to the next inside a chunk.
  std::int32_t num_kv_heads = 0;  ///< Of this rank.
  std::int32_t head_dim = 0;
  const std::int32_t* chunk_table = nullptr;  ///< [slots, table_stride] on device D.
  std::int32_t table_stride = 0;

  /// Elements of one head's K (or V) in one chunk.
  std::int64_t head_stride() const { return std::int64_t{kChunkTokens} * head_dim; }
};

/// How one sequence samples; lives in its slot on the device. Plain data, copied bitwise.
struct SlotParams {
  std::uint64_t seed = 0;    ///< Key of the counter-based noise, already mixed per sample.
  float temperature = 0.0f;  ///< 0: greedy.
  float top_p = 1.0f;
  float min_p = 0.0f;
  float typical_p = 1.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::int32_t top_k = 0;       ///< 0: all.
  std::int32_t min_tokens = 0;  ///< Stop ids cannot be sampled before this many new tokens.
  std::int32_t no_repeat_ngram = 0;
  std::int32_t prompt_tokens = 0;  ///< Length of the prompt; later positions are generated.
  std::int32_t num_stop_ids = 0;
  std::int32_t stop_ids[kMaxStopIds] = {};
};

/// Device state of all sequences; advanced only by the device (`end_step`) and by plan edits.
template <Device D>
struct SlotView {
  std::int32_t num_slots = 0;
  std::int32_t* last_token = nullptr;   ///< [slots] token whose KV is not written yet.
  std::int32_t* length = nullptr;       ///< [slots] tokens in the cache = position of last_token.
  std::uint8_t* done = nullptr;         ///< [slots] 1 once a stop id was sampled.
  SlotParams* params = nullptr;         ///< [slots]
  std::int32_t* chunk_table = nullptr;  ///< [slots, table_stride]
  std::int32_t table_stride = 0;
  std::int32_t* history = nullptr;  ///< [slots, history_stride] tokens by position.
  std::int32_t history_stride = 0;
};

}  // namespace tandem::kernels
