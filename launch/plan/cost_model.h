// SPDX-License-Identifier: Apache-2.0
// What a step of a model costs one rank: the bytes, operations and messages of each seam of the
// decoder, and their time at a machine's rates. From the config alone; no model is loaded. The
// accounting follows Pope et al. 2022, "Efficiently Scaling Transformer Inference" (arXiv
// 2211.05102): weight time, KV time and communication of a one-dimensional tensor split.
#pragma once

#include <string>
#include <vector>

#include "kernels/device/dtype.h"
#include "launch/plan/rates.h"
#include "runtime/model_config.h"

namespace tandem::launch {

/// What one kind of op costs the rank with the largest share, over a whole step.
struct CostLine {
  std::string what;  ///< "MLP, gate and up"
  double count = 0;  ///< Ops of this kind in a step.
  double bytes = 0;  ///< Read from memory: weights, keys and values, activations.
  double flops = 0;
  double message_bytes = 0;  ///< Of one rank, all messages of the step.
  double us = 0;
};

struct StepCost {
  std::vector<CostLine> lines;
  double us() const;
  double message_us() const;  ///< Part of `us()` spent in messages between ranks.
  double bytes() const;
  double flops() const;
  /// The least time that memory bandwidth and arithmetic allow.
  double floor_us(const DeviceRates& rates) const;
};

/// The model on its ranks.
struct PlannedModel {
  const runtime::ModelConfig& config;
  DType dtype = DType::kBF16;
  int ranks = 1;
};

/// One decode step of `batch` sequences that hold `context` tokens each.
StepCost decode_cost(const PlannedModel& model, const DeviceRates& rates, double batch,
                     double context);

/// One prefill step of `tokens` tokens of one sequence, `before` of which are in the cache already;
/// `last`: with the head, which gives the first token.
StepCost prefill_cost(const PlannedModel& model, const DeviceRates& rates, double tokens,
                      double before, bool last);

/// Milliseconds to the first token of a prompt of `tokens`, in steps of at most `step_tokens`.
double ttft_ms(const PlannedModel& model, const DeviceRates& rates, double tokens,
               double step_tokens);

/// Milliseconds from token to token while `output_len` tokens are made behind `input_len`.
double tpot_ms(const PlannedModel& model, const DeviceRates& rates, double batch, double input_len,
               double output_len);

}  // namespace tandem::launch
