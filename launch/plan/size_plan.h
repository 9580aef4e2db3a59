// SPDX-License-Identifier: Apache-2.0
// A model on a number of ranks, planned: what fits into memory, how fast it would be, and which
// number of ranks to take. Plain functions over the cost model.
#pragma once

#include <string>
#include <vector>

#include "launch/plan/cost_model.h"

namespace tandem::launch {

/// What is asked of the model.
struct Workload {
  DType dtype = DType::kBF16;
  int batch = 1, input_len = 128, output_len = 128;
  int step_tokens = 2048;     ///< --max-num-batched-tokens
  double memory_share = 0.9;  ///< --gpu-memory-utilization
};

/// Memory of the rank with the most of it.
struct MemoryPlan {
  double weight_bytes = 0, buffer_bytes = 0, cache_bytes = 0;
  double kv_bytes_per_token = 0;
  double duplicated_kv = 1;  ///< Copies of a key and value over the ranks, on average.
  std::int64_t cache_tokens = 0;
  std::int64_t largest_batch = 0;    ///< Of sequences of the workload's length.
  std::int64_t largest_context = 0;  ///< Of the workload's batch.
};

struct SizePlan {
  int ranks = 1;
  MemoryPlan memory;
  std::string problem;  ///< Empty: it fits.
  StepCost decode;      ///< In the middle of the answer.
  double ttft_ms = 0, tpot_ms = 0, floor_ms = 0;
  double tokens_per_s = 0;  ///< Of all sequences, decoding.
};

SizePlan plan_size(const runtime::ModelConfig& config, const DeviceRates& rates, int ranks,
                   const Workload& workload);

/// Which of the plans to take and why, in a few sentences. ConfigError when none fits.
struct Choice {
  int ranks = 1;
  std::vector<std::string> reasons;
};
Choice choose_size(const std::vector<SizePlan>& plans, const DeviceRates& rates);

std::string plan_table(const std::vector<SizePlan>& plans);
/// Where a decode step's time goes, largest first.
std::string waits_table(const SizePlan& plan, const DeviceRates& rates);
boost::json::object to_json(const SizePlan& plan);

}  // namespace tandem::launch
