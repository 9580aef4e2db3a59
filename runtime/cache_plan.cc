// SPDX-License-Identifier: Apache-2.0
#include "runtime/cache_plan.h"

#include <algorithm>

#include "kvcache/kv_cache.h"

namespace tandem::runtime {

std::int64_t step_buffer_bytes(const ModelConfig& model, const parallel::Shard& shard,
                               const EngineConfig& config, int ranks) {
  const std::int64_t q = shard.q_heads().size() * model.head_dim;
  const std::int64_t kv = shard.kv_heads().size() * model.head_dim;
  const std::int64_t per_token =
      3 * model.hidden_size + 2 * q + 2 * kv + 3 * shard.intermediate().size();
  // Overlapped halves put rows of a half beside the activations.
  const std::int64_t landing = ranks > 1 ? model.hidden_size / 2 : 0;
  const std::int64_t logits = (ranks + 2) * model.vocab_size * std::int64_t{sizeof(float)};
  return (per_token + landing) * config.max_num_batched_tokens * size_bytes(config.dtype) +
         logits * config.max_num_seqs;
}

EngineLimits plan_cache(comm::ControlPlane& control, const ModelConfig& model,
                        const parallel::Shard& shard, const EngineConfig& config,
                        std::int64_t free_bytes) {
  const kvcache::KvGeometry geometry{static_cast<std::int32_t>(model.num_layers()),
                                     static_cast<std::int32_t>(shard.kv_heads().size()),
                                     static_cast<std::int32_t>(model.head_dim),
                                     static_cast<std::int32_t>(size_bytes(config.dtype))};
  const std::int64_t chunks_per_sequence =
      (config.max_model_len + kernels::kChunkTokens - 1) / kernels::kChunkTokens;
  // Chunk 0 is reserved for padding rows.
  const std::int64_t useful = 1 + chunks_per_sequence * config.max_num_seqs;
  const std::int64_t segment = std::max(config.kv_segment_bytes, geometry.chunk_bytes());
  const std::int64_t fits = control.min(free_bytes / geometry.chunk_bytes());
  const std::int64_t chunks = std::min(fits, useful);
  TANDEM_REQUIRE(chunks > chunks_per_sequence, "the KV cache has room for ",
                 std::max<std::int64_t>(fits - 1, 0) * kernels::kChunkTokens,
                 " tokens, but one sequence may have ", config.max_model_len,
                 "; give it more memory with --kv-cache-memory or lower --max-model-len");
  EngineLimits limits;
  limits.max_num_seqs = config.max_num_seqs;
  limits.max_num_batched_tokens = config.max_num_batched_tokens;
  limits.max_model_len = config.max_model_len;
  limits.mixed_step_tokens = config.mixed_step_tokens;
  // Per token 2 operations a parameter, and 4 a query column, layer and visible key.
  limits.attention_equal_tokens = static_cast<std::int32_t>(
      model.num_parameters() / (2 * model.num_heads * model.head_dim * model.num_layers()));
  limits.num_chunks = static_cast<std::int32_t>(chunks);
  limits.growth_chunks = static_cast<std::int32_t>(
      std::max<std::int64_t>(control.min(segment / geometry.chunk_bytes()), 1));
  limits.mapped_chunks = std::min(limits.num_chunks, limits.growth_chunks);
  return limits;
}

}  // namespace tandem::runtime
