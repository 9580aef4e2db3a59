// SPDX-License-Identifier: Apache-2.0
// The report of waits tells the truth: a known wait is put into every second decode step of a real
// run, and the row that it belongs to must be larger in those steps than in the others by what was
// put in, on every rank, within 10 % (medians). A machine that is busy with other work waits for
// real, so an attempt that fails is repeated with a longer wait, which outgrows such noise.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <thread>

#include "kernels/device/op_timer.h"
#include "parallel/shard.h"
#include "runtime/cache_plan.h"
#include "runtime/engine_config.h"
#include "runtime/engine_loop.h"
#include "runtime/waits/attribution.h"
#include "support/mpi_world.h"

namespace tandem::runtime {
namespace {

using std::chrono::milliseconds;

constexpr std::int32_t kTokens = 47;  ///< 46 decode steps, 23 of them with the wait.

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// Waits on purpose and remembers how long that really took, by step.
class Injection {
 public:
  explicit Injection(milliseconds wait) : wait_(wait) {}
  void strike(std::int32_t step) {
    if (step % 2 == 0) return;
    const std::int64_t begin = Recorder::now_ns();
    std::this_thread::sleep_for(wait_);
    ns_.push_back(static_cast<double>(Recorder::now_ns() - begin));
  }
  double median_ns() const { return median(ns_); }

 private:
  milliseconds wait_;
  std::vector<double> ns_;
};

/// Passes everything on; a test may wait or change the plan before a step is launched.
class WrappedEngine final : public Engine {
 public:
  WrappedEngine(Engine& engine, std::function<void(BatchPlan&)> before)
      : engine_(engine), before_(std::move(before)) {}
  const EngineLimits& limits() const override { return engine_.limits(); }
  void submit(const BatchPlan& plan) override {
    BatchPlan changed = plan;
    if (before_) before_(changed);
    engine_.submit(changed);
  }
  StepOutput collect() override { return engine_.collect(); }

 private:
  Engine& engine_;
  std::function<void(BatchPlan&)> before_;
};

/// What a test puts into a run on this rank.
struct Faults {
  std::function<void(Activity, int layer)> probe;
  std::function<void(BatchPlan&)> before_submit;
  std::function<void()> sink;
};

class WaitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const ModelConfig model = read_model_config(folder());
    if (control_.size() > parallel::max_tensor_parallel_size(shard_shape(model)))
      GTEST_SKIP() << "the model has too few heads for this many ranks";
  }

  static std::filesystem::path folder() {
    return std::filesystem::path(TANDEM_FIXTURES) / "models" / "llama-9q3kv";
  }

  /// Generates `kTokens` tokens on all ranks and returns the logs of all ranks, on all ranks.
  std::vector<RankLog> run(Recorder& recorder, const Faults& faults) {
    const ModelConfig model = read_model_config(folder());
    EngineConfig sizes;
    sizes.dtype = DType::kF32;
    sizes.max_model_len = 256;  // with 64 sequences: room to map a segment in every second step
    sizes.max_num_seqs = 64;
    sizes.max_num_batched_tokens = 64;
    sizes.kv_cache_bytes = 64 << 20;
    sizes.kv_segment_bytes = 1 << 16;
    sizes.recorder = &recorder;
    LoadReport report;
    const auto engine =
        make_cpu_engine(control_, model, Checkpoint::open(folder()), sizes, &report);
    WrappedEngine wrapped(*engine, faults.before_submit);
    EngineLoop loop(control_, wrapped, {engine->limits(), false, {}});
    recorder.probe = faults.probe;
    loop.record_to(&recorder);
    if (control_.rank() == 0) {
      Request request;
      request.prompt = {1, 2, 3, 4, 5};
      request.params.max_tokens = kTokens;
      request.params.ignore_eos = true;
      loop.submit(std::move(request), [&](const TokenEvent&) {
        if (faults.sink) faults.sink();
      });
      loop.run_until_idle();
      loop.close();
    } else {
      loop.follow();
    }
    RankLog log;
    log.rank = control_.rank();
    log.ceilings = {10, 0.1};
    log.steps = recorder.steps();
    log.spans = recorder.spans();
    std::vector<RankLog> logs;
    for (const std::string& text : control_.all_gather(serialize(log)))
      logs.push_back(deserialize_rank_log(text));
    return logs;
  }

  /// By how much a row of a rank is larger in the decode steps with the wait, in ns.
  static double growth(const std::vector<AttributedStep>& steps, WaitRow row) {
    std::vector<double> with, without;
    for (const AttributedStep& step : steps) {
      if (step.record.prefill_tokens > 0) continue;
      (step.record.step % 2 == 1 ? with : without).push_back(step.ns(row));
    }
    EXPECT_GE(with.size(), 20u);
    return median(with) - median(without);
  }

  /// `make` sets up the faults of one attempt on this rank; `row` says where rank r must see them.
  void expect_row(const std::function<Faults(Recorder&, Injection&)>& make,
                  const std::function<WaitRow(int rank)>& row) {
    std::string problem;
    for (const int wait_ms : {25, 75, 225}) {
      Recorder recorder;
      Injection injection{milliseconds(wait_ms)};
      const Attribution result = attribute(run(recorder, make(recorder, injection)));
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

  std::string check_rank(const std::vector<AttributedStep>& steps, int rank, WaitRow expected,
                         double injected_ns) {
    std::string problem;
    for (int r = 0; r < kNumWaitRows; ++r) {
      const auto row = static_cast<WaitRow>(r);
      const double wanted = row == expected ? injected_ns : 0;
      const double found = growth(steps, row);
      if (std::abs(found - wanted) > 0.1 * injected_ns)
        problem += concat("rank ", rank, ": ", key(row), " grew by ", found / 1e6, " ms instead of ",
                          wanted / 1e6, " ms\n");
    }
    return problem;
  }

  comm::ControlPlane control_{tandem::testing::world()};
};

TEST_F(WaitsTest, ASlowRankIsSkewOnTheOthersAndComputeOnItself) {
  const int slow = control_.size() - 1;
  expect_row(
      [&](Recorder& recorder, Injection& injection) {
        Faults faults;
        if (control_.rank() == slow)
          faults.probe = [&](Activity activity, int layer) {
            if (activity == Activity::kAttend && layer == 0) injection.strike(recorder.step());
          };
        return faults;
      },
      [&](int rank) { return rank == slow ? WaitRow::kAbove : WaitRow::kSkew; });
}

TEST_F(WaitsTest, ADelayedLaunchIsALaunchGap) {
  expect_row(
      [&](Recorder& recorder, Injection& injection) {
        Faults faults;
        faults.before_submit = [&](BatchPlan&) { injection.strike(recorder.step()); };
        return faults;
      },
      [](int) { return WaitRow::kLaunch; });
}

TEST_F(WaitsTest, MemoryMappedInAStepIsMapping) {
  expect_row(
      [&](Recorder& recorder, Injection& injection) {
        Faults faults;
        // The cache really grows by a segment; the probe makes that slow.
        auto chunks = std::make_shared<std::int32_t>(0);
        faults.before_submit = [&recorder, chunks](BatchPlan& plan) {
          *chunks = std::max(*chunks, plan.mapped_chunks) + (recorder.step() % 2 == 1 ? 8 : 0);
          plan.mapped_chunks = *chunks;
        };
        faults.probe = [&](Activity activity, int) {
          if (activity == Activity::kMap) injection.strike(recorder.step());
        };
        return faults;
      },
      [](int) { return WaitRow::kMapping; });
}

TEST_F(WaitsTest, AStallOfRankZerosHostIsHostOnEveryRank) {
  expect_row(
      [&](Recorder& recorder, Injection& injection) {
        Faults faults;
        // Tokens are delivered in the time of the step behind theirs.
        faults.sink = [&] { injection.strike(recorder.step() + 1); };
        return faults;
      },
      [](int) { return WaitRow::kHost; });
}

TEST_F(WaitsTest, NearlyEverythingIsExplainedAndRecordingIsCheap) {
  Recorder recorder;
  const auto logs = run(recorder, {});
  const Attribution result = attribute(logs);
  for (const auto& steps : result.steps) {
    ASSERT_EQ(steps.size(), static_cast<std::size_t>(kTokens));
    std::vector<double> unexplained, length;
    for (const AttributedStep& step : steps) {
      unexplained.push_back(step.ns(WaitRow::kUnexplained));
      length.push_back(static_cast<double>(step.end_ns - step.begin_ns));
    }
    EXPECT_LE(median(unexplained), 0.05 * median(length));
  }
  // The cost of a span, at best, times the spans of a step: what recording adds to it.
  std::int64_t best_ns = INT64_MAX;
  for (int batch = 0; batch < 50; ++batch) {
    Recorder timed;
    const std::int64_t begin = Recorder::now_ns();
    for (int i = 0; i < 1000; ++i) timed.end(timed.begin(Activity::kDown));
    best_ns = std::min(best_ns, Recorder::now_ns() - begin);
  }
  const double span_ns = static_cast<double>(best_ns) / 1000;
  const double spans = static_cast<double>(recorder.spans().size()) / kTokens;
  std::vector<double> computing;
  for (const AttributedStep& step : result.steps[static_cast<std::size_t>(control_.rank())])
    computing.push_back(static_cast<double>(step.end_ns - step.begin_ns));
  EXPECT_LE(span_ns * spans, 0.03 * median(computing));
}

}  // namespace
}  // namespace tandem::runtime
