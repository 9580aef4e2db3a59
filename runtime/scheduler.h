// SPDX-License-Identifier: Apache-2.0
// Decides every step on rank 0: continuous batching with chunked prefill, first come first served,
// prefix reuse, preemption by recompute. Planned one step ahead: `plan` may be called while the
// tokens of the plan before it are unknown; `commit` brings them later, in order. Host only, no
// MPI, no device, no thread of its own; one caller.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/engine.h"
#include "runtime/request.h"

namespace tandem::runtime {

struct SchedulerConfig {
  EngineLimits limits;
  bool prefix_caching = true;
  std::vector<std::int32_t> eos_ids;  ///< Stop ids of every request without `ignore_eos`.
};

struct SchedulerStats {
  std::int64_t running = 0, waiting = 0, preemptions = 0;
  std::int64_t used_chunks = 0;  ///< Held by sequences, or waiting for the last step to end.
  std::int64_t mapped_chunks = 0, max_chunks = 0;
  std::int64_t cached_chunks = 0;  ///< Known as prefixes; those no sequence holds are not in use.
  std::int64_t prefix_queries_tokens = 0, prefix_hits_tokens = 0;
};

/// ConfigError when the request can never run: a prompt longer than the context, more chunks than
/// the cache, too many stop ids. Does not look at vocabulary (`SamplingParams::validate` does).
void check_request(const Request& request, const SchedulerConfig& config);

/// Prompt tokens without a context that a step of `mixed_step_tokens` rows takes beside `decode`
/// rows.
inline std::int32_t mixed_prompt_tokens(std::int32_t mixed_step_tokens, std::int32_t decode) {
  return std::max({mixed_step_tokens - decode, mixed_step_tokens / 4, 1});
}

class Scheduler {
 public:
  explicit Scheduler(SchedulerConfig config);
  ~Scheduler();

  /// Queues a request that passes `check_request` (else its ConfigError) and whose id is not in
  /// use. The answer is cut at the context's end.
  void add(Request request);

  /// Ends all samples of a request, or one, at once: no more events; chunks are freed behind the
  /// last step that names them. Used for disconnects and for stop strings found on the host.
  void finish(RequestId request);
  void finish(RequestId request, std::int32_t sample);

  /// The next step; an empty plan (no rows) when there is nothing to do yet.
  BatchPlan plan();

  /// Tokens of the oldest uncommitted plan; returns what its requests produced, in order.
  std::vector<TokenEvent> commit(const StepOutput& output);

  bool idle() const;  ///< Nothing waits, runs or is in flight.
  SchedulerStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::runtime
