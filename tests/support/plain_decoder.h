// SPDX-License-Identifier: Apache-2.0
// A decoder in plain float loops over a Checkpoint, for tests: it shows that a ModelConfig, its
// tensor names and rotary tables describe the model that a checkpoint holds, without any engine.
// Whole sequences at once, no cache, no sharding. Slow and simple on purpose.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model_config.h"
#include "runtime/weights/checkpoint.h"

namespace tandem::testing {

/// Logits of every position of `tokens`: [tokens, vocab].
std::vector<std::vector<float>> plain_logits(const runtime::ModelConfig& config,
                                             const runtime::Checkpoint& checkpoint,
                                             const std::vector<std::int32_t>& tokens);

}  // namespace tandem::testing
