// SPDX-License-Identifier: Apache-2.0
// The report of waits tells the truth on CUDA ranks (see support/waits_run.h): ops are timed by
// stamps of the GPU's clock between them, the rest by the step thread.
#include <gtest/gtest.h>

#include "kernels/device/device_info.h"
#include "parallel/shard.h"
#include "runtime/cache_plan.h"
#include "support/mpi_world.h"
#include "support/waits_run.h"

namespace tandem::runtime {
namespace {

using testing::Faults;
using testing::Injection;
using testing::WaitsRun;

class CudaWaitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (control_.size() > parallel::max_tensor_parallel_size(shard_shape(model_)))
      GTEST_SKIP() << "the model has too few heads for this many ranks";
  }

  std::unique_ptr<Engine> make(Recorder& recorder) {
    EngineConfig sizes = WaitsRun::sizes(recorder);
    sizes.max_num_seqs = 4;
    const auto gpus = static_cast<int>(query_devices().devices.size());
    sizes.cuda.device = tandem::testing::world().local_rank() % gpus;
    sizes.cuda.allow_shared_gpu = true;
    LoadReport report;
    return make_cuda_engine(control_, model_, Checkpoint::open(WaitsRun::model()), sizes, &report);
  }

  comm::ControlPlane control_{tandem::testing::world()};
  const ModelConfig model_ = read_model_config(WaitsRun::model());
  WaitsRun run_{control_, [this](Recorder& recorder) { return make(recorder); }};
};

TEST_F(CudaWaitsTest, ALateRankIsALaunchGapOnItselfAndSkewOnTheOthers) {
  const int late = control_.size() - 1;
  run_.expect_row(
      [&](Recorder& recorder, Injection& injection) {
        Faults faults;
        if (control_.rank() == late)
          faults.before_submit = [&](BatchPlan&) { injection.strike(recorder.step()); };
        return faults;
      },
      [&](int rank) { return rank == late ? WaitRow::kLaunch : WaitRow::kSkew; });
}

TEST_F(CudaWaitsTest, AStallOfRankZerosHostIsHostOnEveryRank) {
  run_.expect_host_row_of_a_stalled_rank_zero();
}

TEST_F(CudaWaitsTest, StampsAreInOrderAndCoverTheSteps) {
  Recorder recorder;
  const auto logs = run_.run(recorder, {});
  std::size_t stamped = 0;
  for (const TimeSpan& span : recorder.spans()) {
    EXPECT_LE(span.begin_ns, span.end_ns) << name(span.activity);
    stamped += span.lane == Lane::kCompute && span.activity == Activity::kDown ? 1 : 0;
  }
  EXPECT_GT(stamped, 35u);
  const Attribution result = attribute(logs);
  WaitsRun::expect_nearly_all_explained(result);
}

}  // namespace
}  // namespace tandem::runtime
