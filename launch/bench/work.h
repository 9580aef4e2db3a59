// SPDX-License-Identifier: Apache-2.0
// How much a model's inference must move and compute on one rank, and the least time in which a
// machine of given ceilings can do it. Plain numbers.
#pragma once

#include "kernels/device/dtype.h"
#include "launch/bench/results.h"
#include "runtime/engine_config.h"
#include "runtime/model_config.h"

namespace tandem::launch {

/// Of one rank, from the config.
struct Work {
  double weight_bytes = 0;  ///< Read by one decode step.
  double kv_bytes_per_token = 0, matmul_parameters = 0;
  double attention_flops_per_pair = 0;
};
Work work_of(const runtime::ModelConfig& model, DType dtype, int ranks);
/// The same of weights that `load` kept in few bits, if it did.
Work work_of(const runtime::ModelConfig& model, DType dtype, int ranks,
             const runtime::LoadReport& load);

/// What a stretch of serving computed.
struct ServedWork {
  double prefill_tokens = 0, prefill_pairs = 0;  ///< Pairs of a query and a key it sees.
  double decode_tokens = 0, decode_context = 0;  ///< Context: KV tokens read, summed over tokens.
  double steps = 0;                              ///< Each reads the weights once.
};

/// Seconds: weights streamed or matmuls computed, whichever takes longer (one runs behind the
/// other), then attention of prompts and the KV cache read by decode; no communication, no start of
/// kernels. 0 when the ceilings are not known.
double floor_seconds(const Work& work, const ServedWork& served, const Ceilings& ceilings);

}  // namespace tandem::launch
