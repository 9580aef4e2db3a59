// SPDX-License-Identifier: Apache-2.0
// Runs a real engine with known waits in every second decode step, and checks that the report of
// waits finds them: the row that they belong to is larger in those steps than in the others by what
// was put in, on every rank, within 10 % (medians over 20 steps and more), and no other row grows.
// A machine that is busy with other work waits for real, so an attempt that fails is repeated with
// a longer wait, which outgrows such noise. Collective: every rank calls the same.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/control_plane.h"
#include "kernels/device/recorder.h"
#include "runtime/engine_config.h"
#include "runtime/engine_loop.h"
#include "runtime/waits/attribution.h"

namespace tandem::testing {

inline constexpr std::int32_t kWaitTokens = 55;  ///< 54 decode steps, 27 of them with the wait.

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// Waits on purpose and remembers how long that really took.
class Injection {
 public:
  explicit Injection(std::chrono::milliseconds wait) : wait_(wait) {}
  void strike(std::int32_t step) {
    if (step % 2 == 0) return;
    const std::int64_t begin = Recorder::now_ns();
    std::this_thread::sleep_for(wait_);
    ns_.push_back(static_cast<double>(Recorder::now_ns() - begin));
  }
  double median_ns() const { return median(ns_); }

 private:
  std::chrono::milliseconds wait_;
  std::vector<double> ns_;
};

/// What a test puts into a run on this rank; each may be empty.
struct Faults {
  std::function<void(Activity, int layer)> probe;          ///< Inside spans of the step thread.
  std::function<void(runtime::BatchPlan&)> before_submit;  ///< May wait, may change the plan.
  std::function<void()> sink;                              ///< For each token, on rank 0.
  std::int32_t prompt_tokens = 5;
};

/// Passes everything on but for what a test does before a step is launched.
class WrappedEngine final : public runtime::Engine {
 public:
  WrappedEngine(Engine& engine, std::function<void(runtime::BatchPlan&)> before)
      : engine_(engine), before_(std::move(before)) {}
  const runtime::EngineLimits& limits() const override { return engine_.limits(); }
  void submit(const runtime::BatchPlan& plan) override {
    runtime::BatchPlan changed = plan;
    if (before_) before_(changed);
    engine_.submit(changed);
  }
  runtime::StepOutput collect() override { return engine_.collect(); }
  void finish_recording() override { engine_.finish_recording(); }

 private:
  Engine& engine_;
  std::function<void(runtime::BatchPlan&)> before_;
};

class WaitsRun {
 public:
  /// Makes this rank's engine; it records to the recorder given.
  using Make = std::function<std::unique_ptr<runtime::Engine>(Recorder&)>;
  WaitsRun(comm::ControlPlane& control, Make make) : control_(control), make_(std::move(make)) {}

  static std::filesystem::path model() {
    return std::filesystem::path(TANDEM_FIXTURES) / "models" / "llama-9q3kv";
  }
  /// Sizes that leave room to map a segment of the cache in every second step.
  static runtime::EngineConfig sizes(Recorder& recorder) {
    runtime::EngineConfig config;
    config.dtype = DType::kF32;
    config.max_model_len = 256;
    config.max_num_seqs = 64;
    config.max_num_batched_tokens = 64;
    config.kv_cache_bytes = 64 << 20;
    config.kv_segment_bytes = 1 << 16;
    config.recorder = &recorder;
    return config;
  }

  /// Generates tokens on all ranks and returns the logs of all ranks, on all ranks.
  std::vector<runtime::RankLog> run(Recorder& recorder, const Faults& faults) {
    const auto engine = make_(recorder);
    WrappedEngine wrapped(*engine, faults.before_submit);
    runtime::EngineLoop loop(control_, wrapped, {engine->limits(), false, {}});
    recorder.probe = faults.probe;
    loop.record_to(&recorder);
    if (control_.rank() == 0) {
      runtime::Request request;
      for (std::int32_t i = 1; i <= faults.prompt_tokens; ++i) request.prompt.push_back(i);
      request.params.max_tokens = kWaitTokens;
      request.params.ignore_eos = true;
      loop.submit(std::move(request), [&](const runtime::TokenEvent&) {
        if (faults.sink) faults.sink();
      });
      loop.run_until_idle();
      loop.close();
    } else {
      loop.follow();
    }
    engine->finish_recording();
    runtime::RankLog log;
    log.rank = control_.rank();
    log.synchronous = engine->limits().synchronous;
    log.dropped = recorder.dropped();
    log.ceilings =
        log.synchronous ? runtime::RankCeilings{10, 0.1} : runtime::RankCeilings{4000, 700};
    log.steps = recorder.steps();
    log.spans = recorder.spans();
    std::vector<runtime::RankLog> logs;
    for (const std::string& text : control_.all_gather(serialize(log)))
      logs.push_back(runtime::deserialize_rank_log(text));
    return logs;
  }

  /// `make` sets up the faults of one attempt on this rank; `row` says where rank r must see them.
  void expect_row(const std::function<Faults(Recorder&, Injection&)>& make,
                  const std::function<runtime::WaitRow(int rank)>& row) {
    std::string problem;
    for (const int wait_ms : {25, 100, 400}) {
      Recorder recorder;
      Injection injection{std::chrono::milliseconds(wait_ms)};
      const auto result = runtime::attribute(run(recorder, make(recorder, injection)));
      // Some faults strike one rank only: the longest median is the one that was put in.
      const double injected_ns =
          static_cast<double>(control_.max(static_cast<std::int64_t>(injection.median_ns())));
      ASSERT_GE(injected_ns, 20e6);
      problem.clear();
      for (int r = 0; r < control_.size(); ++r)
        problem += check_rank(result.steps[static_cast<std::size_t>(r)], r, row(r), injected_ns);
      if (problem.empty()) return;
    }
    FAIL() << problem;
  }

  /// Rank 0 stalls while it delivers tokens, which it does in the time of the step that comes next:
  /// host on every rank.
  void expect_host_row_of_a_stalled_rank_zero() {
    expect_row(
        [](Recorder& recorder, Injection& injection) {
          Faults faults;
          faults.sink = [&] { injection.strike(recorder.step() + 1); };
          return faults;
        },
        [](int) { return runtime::WaitRow::kHost; });
  }

  /// The cache really grows by a segment, of `chunks_of_segment`, in every second step; the probe
  /// makes that slow.
  void expect_mapping_row_of_slow_growth(std::int32_t chunks_of_segment) {
    expect_row(
        [chunks_of_segment](Recorder& recorder, Injection& injection) {
          Faults faults;
          auto chunks = std::make_shared<std::int32_t>(0);
          faults.before_submit = [&recorder, chunks, chunks_of_segment](runtime::BatchPlan& plan) {
            *chunks = std::max(*chunks, plan.mapped_chunks) +
                      (recorder.step() % 2 == 1 ? chunks_of_segment : 0);
            plan.mapped_chunks = *chunks;
          };
          faults.probe = [&](Activity activity, int) {
            if (activity == Activity::kMap) injection.strike(recorder.step());
          };
          return faults;
        },
        [](int) { return runtime::WaitRow::kMapping; });
  }

  /// By how much `ns(step)` is larger in the decode steps with the wait than in those without.
  static double growth(const std::vector<runtime::AttributedStep>& steps,
                       const std::function<double(const runtime::AttributedStep&)>& ns) {
    std::vector<double> with, without;
    for (const runtime::AttributedStep& step : steps) {
      if (step.record.prefill_tokens > 0 || step.record.stamped == 0) continue;
      (step.record.step % 2 == 1 ? with : without).push_back(ns(step));
    }
    EXPECT_GE(with.size(), 20u);
    return median(with) - median(without);
  }

  /// At most 5 % of a median step of any rank is unexplained.
  static void expect_nearly_all_explained(const runtime::Attribution& result) {
    for (const auto& steps : result.steps) {
      std::vector<double> unexplained, length;
      for (const runtime::AttributedStep& step : steps) {
        unexplained.push_back(step.ns(runtime::WaitRow::kUnexplained));
        length.push_back(static_cast<double>(step.end_ns - step.begin_ns));
      }
      EXPECT_LE(median(unexplained), 0.05 * median(length));
    }
  }

 private:
  static std::string check_rank(const std::vector<runtime::AttributedStep>& steps, int rank,
                                runtime::WaitRow expected, double injected_ns) {
    std::string problem;
    for (int r = 0; r < runtime::kNumWaitRows; ++r) {
      const auto row = static_cast<runtime::WaitRow>(r);
      const double wanted = row == expected ? injected_ns : 0;
      const double found =
          growth(steps, [&](const runtime::AttributedStep& step) { return step.ns(row); });
      // Other rows may shrink: a rank that is made late finds the others waiting already.
      if (found > wanted + 0.1 * injected_ns || (wanted > 0 && found < 0.9 * wanted))
        problem += concat("rank ", rank, ": ", key(row), " grew by ", found / 1e6,
                          " ms instead of ", wanted / 1e6, " ms\n");
    }
    return problem;
  }

  comm::ControlPlane& control_;
  Make make_;
};

}  // namespace tandem::testing
