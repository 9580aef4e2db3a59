// SPDX-License-Identifier: Apache-2.0
// How large the KV cache may become: chunks that every rank can hold, agreed over all ranks.
#pragma once

#include "comm/control_plane.h"
#include "parallel/shard.h"
#include "runtime/engine_config.h"
#include "runtime/model_report.h"

namespace tandem::runtime {

/// Limits with num_chunks = minimum over ranks of floor(free_bytes / chunk bytes), and no more than
/// all sequences at full length could use. Collective. ConfigError when one sequence of
/// `max_model_len` tokens does not fit.
EngineLimits plan_cache(comm::ControlPlane& control, const ModelConfig& model,
                        const parallel::Shard& shard, const EngineConfig& config,
                        std::int64_t free_bytes);

}  // namespace tandem::runtime
