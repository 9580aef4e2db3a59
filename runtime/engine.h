// SPDX-License-Identifier: Apache-2.0
// What carries out plans on one rank: the only virtual interface of the project, one call a step.
// `submit` enqueues a step and returns; `collect` waits for the oldest step that was not
// collected. At most two steps are in flight. All ranks submit the same plans in the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/verdict.h"
#include "kernels/sample.h"
#include "runtime/batch_plan.h"
#include "runtime/prefill_trial.h"

namespace tandem::runtime {

/// Tokens of one step, in sample order (decode rows, then the sampling segments).
struct StepOutput {
  std::int64_t step = 0;
  std::vector<std::int32_t> tokens;             ///< -1: the row's sequence was done already.
  std::vector<kernels::TokenLogprob> logprobs;  ///< [samples, 1 + kMaxLogprobs] when planned.
  std::vector<kernels::TokenLogprob> scores;    ///< [scored rows, 1 + kMaxLogprobs]
};

/// What the scheduler has to know about the engine; equal on all ranks.
struct EngineLimits {
  std::int32_t max_num_seqs = 0;            ///< Slots.
  std::int32_t max_num_batched_tokens = 0;  ///< Token rows of a step.
  /// Rows of a step that holds decode rows and prompt tokens; 0: as many as any step has. Bounds
  /// what a long prompt adds to the time between two tokens of the others.
  std::int32_t mixed_step_tokens = 0;
  /// Context at which attention of a prompt token costs as much as its matmuls; 0: never counted.
  std::int32_t attention_equal_tokens = 0;
  /// Rows of a prompt that prefill attention takes at once: fewer of them cost as much.
  std::int32_t prefill_tile_tokens = 1;
  std::int32_t max_model_len = 0;  ///< Tokens of a sequence, prompt and answer.
  std::int32_t num_chunks = 0;     ///< Chunks the cache can ever hold; chunk 0 is reserved.
  std::int32_t mapped_chunks = 0;  ///< Chunks it holds now.
  std::int32_t growth_chunks = 0;  ///< Chunks of one segment of growth.
  bool synchronous = false;        ///< `submit` returns with the step finished.
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual const EngineLimits& limits() const = 0;
  virtual void submit(const BatchPlan& plan) = 0;
  virtual StepOutput collect() = 0;

  /// Empty, or what went wrong between the ranks' devices in a step that was submitted. Any thread.
  virtual std::string device_error() const { return {}; }
  /// How far this rank's device has come in collectives that it does on its own; nothing when it
  /// cannot tell. May block. Any thread.
  virtual std::optional<comm::DevicePosition> device_position() const { return {}; }
  /// The process ends: kernels that wait for other ranks return, and `collect` throws, because what
  /// they computed is wrong. Any thread.
  virtual void abandon() noexcept {}
  /// After the last step, when a recorder was given: brings it what the device still holds.
  virtual void finish_recording() {}

  /// Measurements only, between steps and equally on all ranks: how later steps with prefill run.
  virtual void set_trial(const PrefillTrial&) {}
  virtual void set_overlap_min_tokens(std::int32_t) {}
};

}  // namespace tandem::runtime
