// SPDX-License-Identifier: Apache-2.0
// The report of waits tells the truth on CPU ranks (see support/waits_run.h), explains nearly all
// of the time, and costs little.
#include <gtest/gtest.h>

#include "kernels/device/op_timer.h"
#include "parallel/shard.h"
#include "runtime/cache_plan.h"
#include "support/mpi_world.h"
#include "support/waits_run.h"

namespace tandem::runtime {
namespace {

using testing::Faults;
using testing::Injection;
using testing::WaitsRun;

class WaitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (control_.size() > parallel::max_tensor_parallel_size(shard_shape(model_)))
      GTEST_SKIP() << "the model has too few heads for this many ranks";
  }

  std::unique_ptr<Engine> make(Recorder& recorder) {
    LoadReport report;
    return make_cpu_engine(control_, model_, Checkpoint::open(WaitsRun::model()),
                           WaitsRun::sizes(recorder), &report);
  }

  comm::ControlPlane control_{tandem::testing::world()};
  const ModelConfig model_ = read_model_config(WaitsRun::model());
  WaitsRun run_{control_, [this](Recorder& recorder) { return make(recorder); }};
};

TEST_F(WaitsTest, ASlowRankIsSkewOnTheOthersAndComputeOnItself) {
  const int slow = control_.size() - 1;
  run_.expect_row(
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
  run_.expect_row(
      [](Recorder& recorder, Injection& injection) {
        Faults faults;
        faults.before_submit = [&](BatchPlan&) { injection.strike(recorder.step()); };
        return faults;
      },
      [](int) { return WaitRow::kLaunch; });
}

TEST_F(WaitsTest, MemoryMappedInAStepIsMapping) { run_.expect_mapping_row_of_slow_growth(8); }

TEST_F(WaitsTest, AStallOfRankZerosHostIsHostOnEveryRank) {
  run_.expect_host_row_of_a_stalled_rank_zero();
}

TEST_F(WaitsTest, NearlyEverythingIsExplained) {
  Recorder recorder;
  const Attribution result = attribute(run_.run(recorder, {}));
  for (const auto& steps : result.steps)
    ASSERT_EQ(steps.size(), static_cast<std::size_t>(testing::kWaitTokens));
  WaitsRun::expect_nearly_all_explained(result);
}

/// What recording adds to a step: its spans, at the least that one takes here. The fixture's two
/// layers are far smaller than any real model's, which take 100 us each and more on a CPU.
TEST_F(WaitsTest, RecordingCostsLessThanThreePercentOfAStep) {
  Recorder recorder;
  const Attribution result = attribute(run_.run(recorder, {}));
  std::int64_t best_ns = INT64_MAX;
  for (int batch = 0; batch < 50; ++batch) {
    Recorder timed;
    const std::int64_t begin = Recorder::now_ns();
    for (int i = 0; i < 1000; ++i) timed.end(timed.begin(Activity::kDown));
    best_ns = std::min(best_ns, Recorder::now_ns() - begin);
  }
  std::vector<double> length;
  for (const AttributedStep& step : result.steps[static_cast<std::size_t>(control_.rank())])
    length.push_back(static_cast<double>(step.end_ns - step.begin_ns));
  const double spans = static_cast<double>(recorder.spans().size()) / testing::kWaitTokens;
  constexpr double kTwoRealLayersNs = 200'000;
  EXPECT_LE(static_cast<double>(best_ns) / 1000 * spans,
            0.03 * std::max(testing::median(length), kTwoRealLayersNs));
}

}  // namespace
}  // namespace tandem::runtime
