// SPDX-License-Identifier: Apache-2.0
// Drives an engine on all ranks: rank 0 schedules, every plan is broadcast, every rank submits it.
// One step ahead: step n + 1 is planned, and on a device submitted, before the tokens of step n
// are read; a synchronous engine delivers step n before it starts the next. The step thread (the
// caller of `run`, `run_until_idle` and `follow`) alone uses MPI and the engine; `submit`,
// `cancel`, `stop` and `stats` are for any thread. While rank 0 has nothing to do every rank
// sleeps.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "comm/control_plane.h"
#include "runtime/engine.h"
#include "runtime/request.h"
#include "runtime/scheduler.h"
#include "runtime/step_clock.h"
#include "runtime/step_digest.h"
#include "runtime/waits/step_work.h"

namespace tandem::runtime {

struct LoopStats {
  SchedulerStats scheduler;
  std::int64_t steps = 0;
  std::int64_t prefill_tokens = 0;    ///< Token rows of prompts computed.
  std::int64_t generated_tokens = 0;  ///< Tokens delivered.
  StepTimes times;
};

class EngineLoop {
 public:
  /// Called on the step thread for each token and for the end; must neither block nor throw.
  using Sink = std::function<void(const TokenEvent&)>;

  /// Collective in effect: all ranks make one, with equal limits.
  EngineLoop(comm::ControlPlane& control, Engine& engine, SchedulerConfig config);
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  /// Queues a request on rank 0. Its id is chosen here and returned (`request.id` is not looked
  /// at). ConfigError, in the caller's thread, when it can never run.
  RequestId submit(Request request, Sink sink);

  /// Ends all samples of a request, or one. Events that are being delivered may still arrive; after
  /// the step thread has seen the wish there are none. Unknown ids are ignored.
  void cancel(RequestId request);
  void cancel(RequestId request, std::int32_t sample);

  /// Rank 0: works until every request has ended. May be called again after more `submit`s.
  void run_until_idle();

  /// Rank 0: works until `stop`, then ends what is left (FinishReason::kAbort) and closes.
  void run();
  void stop();

  /// Rank 0: sends the others home from `follow`. Called once, last; `run` does it itself.
  void close();

  /// Other ranks: carries out rank 0's plans until it closes.
  void follow();

  LoopStats stats() const;

  /// From here on steps and phases of the step thread are recorded; null: no more. Step thread.
  void record_to(Recorder* recorder) { recorder_ = recorder; }

 private:
  struct Cancel {
    RequestId request = 0;
    std::optional<std::int32_t> sample;
  };
  struct Inbox {
    std::vector<std::pair<Request, Sink>> requests;
    std::vector<Cancel> cancels;
    bool stop = false;
    bool empty() const { return requests.empty() && cancels.empty() && !stop; }
  };
  struct Outlet {
    Sink sink;
    std::vector<bool> ended;  ///< By sample.
  };

  /// Faults are told before the engine is unwound, whose device may wait for other ranks.
  template <typename Work>
  void guarded(Work work);
  bool take_inbox();  ///< False once `stop` was called.
  void turn();
  void carry_out_plans();
  void submit_plan(const BatchPlan& plan, std::span<const std::byte> bytes);
  void begin_record(const BatchPlan& plan);
  StepOutput collect();
  void deliver();
  void end_sample(RequestId request, std::int32_t sample);
  void abort_all();
  void compare_digests(std::int64_t step);
  /// Tells the watchdog what the step thread does.
  void publish(comm::StageKind kind, const char* what);
  /// Of calls that wait for what a device does meanwhile, if it does.
  comm::StageKind device_stage() const {
    return config_.limits.synchronous ? comm::StageKind::kStep : comm::StageKind::kDevice;
  }

  comm::ControlPlane& control_;
  Engine& engine_;
  SchedulerConfig config_;
  Scheduler scheduler_;
  StepDigest digest_;
  StepClock clock_;
  int in_flight_ = 0;
  Recorder* recorder_ = nullptr;
  StepWorkCounter work_counter_;
  std::map<RequestId, Outlet> outlets_;

  std::mutex inbox_mutex_;
  std::condition_variable inbox_filled_;
  Inbox inbox_;
  std::atomic<RequestId> next_id_{1};

  mutable std::mutex stats_mutex_;
  LoopStats stats_;
};

}  // namespace tandem::runtime
