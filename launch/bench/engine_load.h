// SPDX-License-Identifier: Apache-2.0
// Puts a workload on an engine loop and counts what comes out. All at once: from the first request
// to the last token. Steady: always `concurrency` requests, the first of which begin at ages spread
// evenly over an answer (their prompts are as long as prompt and answer so far), so that contexts,
// ends and prefills are spread from the start as they are after hours: there is no ramp and no wave
// of prefills. Counting begins when each of them has given a token. Rank 0, step thread.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "launch/bench/progress_line.h"
#include "launch/bench/work.h"
#include "launch/bench/workload.h"
#include "runtime/engine_loop.h"

namespace tandem::launch {

struct SteadyConfig {
  std::int32_t concurrency = 0;
  double warmup_s = 2, duration_s = 30;  ///< Before, and while, counting.
  std::int32_t parts = 5;                ///< Equal parts of the duration; each is a sample.
  std::int32_t step_tokens = 2048, mixed_step_tokens = 0;  ///< Of the engine.
};

/// What was counted.
struct LoadCount {
  double seconds = 0;
  std::int64_t requests = 0;  ///< Ended.
  std::int64_t output_tokens = 0,
               prompt_tokens = 0;    ///< Prompts: of requests that began to answer.
  std::vector<double> output_per_s;  ///< Of each part.
  ServedWork work;
};

class EngineLoad {
 public:
  /// Tokens of a request whose text is its prompt.
  using Encode = std::function<std::vector<std::int32_t>(const std::string&)>;

  EngineLoad(runtime::EngineLoop& loop, const Workload& workload, PromptMaker prompts,
             Encode encode, ProgressLine& progress);

  LoadCount run_all();
  LoadCount run_steady(const SteadyConfig& config);

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    runtime::RequestId id = 0;
    std::int64_t prompt = 0, tokens = 0;  ///< Tokens given so far.
    std::int64_t output = 0;
  };

  BenchRequest next_item();
  /// Submits a request in `place`; all but `left` tokens of its answer are taken as given.
  void begin(std::size_t place, BenchRequest item, std::int32_t left);
  void begin(std::size_t place);
  void accept(std::size_t place, const runtime::TokenEvent& event);
  void count(const Running& running, bool ended);
  void open();
  void close();

  runtime::EngineLoop& loop_;
  const Workload& workload_;
  PromptMaker prompts_;
  Encode encode_;
  ProgressLine& progress_;
  std::vector<Running> running_;
  std::int64_t next_ = 0;
  std::size_t started_ = 0;  ///< Places whose first request has given a token.

  bool steady_ = false, counting_ = false, closed_ = false;
  SteadyConfig config_;
  Clock::time_point ready_, opened_;
  runtime::LoopStats before_;
  LoadCount count_;
  std::vector<std::int64_t> part_tokens_;
};

}  // namespace tandem::launch
