// SPDX-License-Identifier: Apache-2.0
// How large the KV cache may become: what a step takes beside it, and chunks that every rank can
// hold, agreed over all ranks.
#pragma once

#include "comm/control_plane.h"
#include "parallel/shard.h"
#include "runtime/engine_config.h"
#include "runtime/model_report.h"

namespace tandem::runtime {

/// Graphs, cuBLASLt workspaces, NCCL buffers and kernels' local memory of a CUDA rank.
inline constexpr std::int64_t kCudaReserveBytes = std::int64_t{3} << 29;

/// Bytes of a step's activations and logits on this rank.
std::int64_t step_buffer_bytes(const ModelConfig& model, const parallel::Shard& shard,
                               const EngineConfig& config, int ranks);

/// Limits with num_chunks = minimum over ranks of floor(free_bytes / chunk bytes), and no more than
/// all sequences at full length could use. Collective. ConfigError when one sequence of
/// `max_model_len` tokens does not fit.
EngineLimits plan_cache(comm::ControlPlane& control, const ModelConfig& model,
                        const parallel::Shard& shard, const EngineConfig& config,
                        std::int64_t free_bytes);

}  // namespace tandem::runtime
