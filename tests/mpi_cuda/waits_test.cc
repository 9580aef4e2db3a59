// SPDX-License-Identifier: Apache-2.0
// The report of waits tells the truth on CUDA ranks (see support/waits_run.h): ops are timed by
// stamps of the GPU's clock between them, the rest by the step thread.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "kernels/device/cuda/check.h"
#include "kernels/device/cuda/context.h"
#include "kernels/device/cuda/event.h"
#include "kernels/device/cuda/graph.h"
#include "kernels/device/cuda/stamps.h"
#include "kernels/device/device_info.h"
#include "kernels/device/host_buffer.h"
#include "kvcache/virtual_range_cuda.h"
#include "launch/bench/domains_cuda/domains_kernels.h"
#include "parallel/shard.h"
#include "runtime/cache_plan.h"
#include "runtime/device_engine.h"
#include "support/model_shapes.h"
#include "support/mpi_world.h"
#include "support/test_engine.h"
#include "support/waits_run.h"

namespace tandem::runtime {
namespace {

using testing::Faults;
using testing::Injection;
using testing::WaitsRun;

class CudaWaitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = tandem::testing::engine_missing(); !why.empty())
      GTEST_SKIP() << why;
    const auto too_small = [this] {
      return control_.size() > parallel::max_tensor_parallel_size(shard_shape(model_));
    };
    if (too_small()) use_fast_kernels();
    if (too_small()) GTEST_SKIP() << "the model has too few heads for this many ranks";
  }

  std::unique_ptr<Engine> make(Recorder& recorder) {
    EngineConfig sizes = WaitsRun::sizes(recorder);
    sizes.dtype = dtype_;
    sizes.max_num_seqs = max_num_seqs_;
    sizes.kv_cache_bytes = std::int64_t{128} << 20;
    const auto gpus = static_cast<int>(query_devices().devices.size());
    sizes.cuda.device = tandem::testing::world().local_rank() % gpus;
    sizes.cuda.allow_shared_gpu = true;
    sizes.cuda.enforce_eager = eager_;
    sizes.cuda.decode_matmul = decode_matmul_;
    LoadReport report;
    auto engine = make_cuda_engine(control_, model_, checkpoint(), sizes, &report);
    compute_ = dtype_ == DType::kF32
                   ? &dynamic_cast<DeviceEngine<float, Cuda>&>(*engine).context().compute()
                   : &dynamic_cast<DeviceEngine<BFloat16, Cuda>&>(*engine).context().compute();
    return engine;
  }
  Checkpoint checkpoint() const {
    return dummy_ ? Checkpoint::dummy(model_, 1) : Checkpoint::open(WaitsRun::model());
  }

  /// Random weights in shapes that all fast kernels take, in bfloat16.
  void use_fast_kernels() {
    dummy_ = true;
    dtype_ = DType::kBF16;
    model_ = tandem::testing::with_fast_shapes(std::move(model_));
  }

  comm::ControlPlane control_{tandem::testing::world()};
  ModelConfig model_ = read_model_config(WaitsRun::model());
  DType dtype_ = DType::kF32;
  bool eager_ = false, dummy_ = false;
  std::int32_t max_num_seqs_ = 4;
  std::string decode_matmul_ = "auto";
  Stream<Cuda>* compute_ = nullptr;  ///< Of the engine made last.
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

/// The GPU of one rank stands still inside of an op.
TEST_F(CudaWaitsTest, ASlowRankIsSkewOnTheOthersAndComputeOnItself) {
  eager_ = true;
  struct Stall {
    Injection* injection;
    std::int32_t step;
  };
  const int slow = control_.size() - 1;
  std::vector<std::unique_ptr<Stall>> stalls;
  run_.expect_row(
      [&](Recorder& recorder, Injection& injection) {
        Faults faults;
        if (control_.rank() == slow)
          faults.probe = [&](Activity activity, int layer) {
            if (activity != Activity::kAttend || layer != 0) return;
            stalls.push_back(std::make_unique<Stall>(Stall{&injection, recorder.step()}));
            const auto strike = [](void* data) {
              const auto* stall = static_cast<const Stall*>(data);
              stall->injection->strike(stall->step);
            };
            TANDEM_CHECK(cudaLaunchHostFunc(compute_->handle(), strike, stalls.back().get()));
          };
        return faults;
      },
      [&](int rank) { return rank == slow ? WaitRow::kAbove : WaitRow::kSkew; });
}

/// A GPU maps no less than 2 MiB.
TEST_F(CudaWaitsTest, MemoryMappedInAStepIsMapping) {
  use_fast_kernels();
  eager_ = true;
  max_num_seqs_ = 256;
  constexpr std::int32_t kChunkBytesOfAllRanks = 2 * 2 * 2 * 64 * 128 * 2;
  run_.expect_mapping_row_of_slow_growth((2 << 20) * control_.size() / kChunkBytesOfAllRanks);
}

TEST_F(CudaWaitsTest, AStallOfRankZerosHostIsHostOnEveryRank) {
  run_.expect_host_row_of_a_stalled_rank_zero();
}

/// Blocks that write host memory, in the memory synchronization domain of the steps.
class Noise {
 public:
  void start() {
    fill(0);
    bench::launch_aggressor(noise_, {bench::Traffic::kStores, kBlocks, host_.data(), kBlockUnits,
                                     flags_.data(), flags_.data() + 1, traces_.data()});
    while (started() < kBlocks) continue;
    running_ = true;
  }
  void stop() {
    if (!running_) return;
    TANDEM_CHECK(cudaMemsetAsync(flags_.data() + 1, 1, sizeof(std::uint32_t), other_.handle()));
    noise_.synchronize();
    running_ = false;
  }

 private:
  static constexpr int kBlocks = 2;
  static constexpr std::int64_t kBlockUnits = 1 << 16;

  void fill(int value) {
    TANDEM_CHECK(cudaMemsetAsync(flags_.data(), value,
                                 static_cast<std::size_t>(flags_.size_bytes()), noise_.handle()));
  }
  std::uint32_t started() {
    TANDEM_CHECK(cudaMemcpyAsync(seen_.data(), flags_.data(), sizeof(std::uint32_t),
                                 cudaMemcpyDeviceToHost, other_.handle()));
    other_.synchronize();
    return seen_[0];
  }

  Stream<Cuda> noise_{Stream<Cuda>::Priority::kNormal, {true, 0, 0}};
  Stream<Cuda> other_{Stream<Cuda>::Priority::kNormal, {true, 0, 1}};
  Buffer<std::uint32_t, Cuda> flags_{2};  ///< Blocks that run, stop
  Buffer<bench::BlockTrace, Cuda> traces_{kBlocks};
  HostBuffer<uint4, Cuda> host_{kBlocks * kBlockUnits};
  HostBuffer<std::uint32_t, Cuda> seen_{1};
  bool running_ = false;
};

/// What steps with noise (odd ones) have more of than steps without, in ns.
struct NoiseCost {
  double quiet = 0, added = 0;  ///< From the first to the last op of a step.
  double fences = 0, above = 0, launch = 0;
};

NoiseCost cost_of_noise(const Attribution& result, const std::vector<TimeSpan>& spans) {
  std::map<std::int32_t, std::pair<std::int64_t, std::int64_t>> ops;
  for (const TimeSpan& span : spans) {
    if (!is_op(span.activity)) continue;
    const auto [at, fresh] = ops.try_emplace(span.step, span.begin_ns, span.end_ns);
    at->second.second = std::max(at->second.second, span.end_ns);
  }
  const auto length = [&](const AttributedStep& step) {
    const auto& [begin, end] = ops.at(step.record.step);
    return static_cast<double>(end - begin);
  };
  const auto& steps = result.steps[0];
  const auto row = [&](WaitRow which) {
    return WaitsRun::growth(steps, [&](const AttributedStep& step) { return step.ns(which); });
  };
  std::vector<double> quiet;
  for (const AttributedStep& step : steps)
    if (step.record.prefill_tokens == 0 && step.record.step % 2 == 0) quiet.push_back(length(step));
  return {testing::median(quiet), WaitsRun::growth(steps, length), row(WaitRow::kFences),
          row(WaitRow::kAbove), row(WaitRow::kLaunch)};
}

/// Every kernel's end then waits for the writes of the others, on an H200 15 to 30 us. What that
/// costs a step is seen from its first to its last op, in graphs, for which no host is too slow.
/// Kernels that read little and others that write with two blocks: with more of either, reading
/// gets slow as well, which is no fence. How much of that there is differs from run to run.
TEST_F(CudaWaitsTest, ASharedDomainIsFences) {
  if (control_.size() > 1) GTEST_SKIP() << "ranks of one GPU take turns";
  use_fast_kernels();
  decode_matmul_ = "streaming";
  model_.hidden_size = 512;
  model_.num_heads = 4;
  model_.intermediate_size = 512;
  model_.layers.resize(256, model_.layers.front());
  bench::load_domains_kernels();
  NoiseCost cost;
  for (int attempt = 0; attempt < 3; ++attempt) {
    Noise noise;
    Recorder recorder;
    Faults faults;
    faults.before_submit = [&](BatchPlan&) {
      compute_->synchronize();
      noise.stop();
      if (recorder.step() % 2 == 1) noise.start();
    };
    const Attribution result = attribute(run_.run(recorder, faults));
    noise.stop();
    cost = cost_of_noise(result, recorder.spans());
    std::printf(
        "a shared domain: steps of %.2f ms are %.2f ms longer, fences %.2f, above %.2f, "
        "launch %.2f\n",
        cost.quiet / 1e6, cost.added / 1e6, cost.fences / 1e6, cost.above / 1e6, cost.launch / 1e6);
    if (std::abs(cost.fences - cost.added) <= 0.1 * cost.added) break;
  }
  ASSERT_GE(cost.added, 20e6) << "there is nothing to see";
  EXPECT_NEAR(cost.fences, cost.added, 0.1 * cost.added);
  EXPECT_LE(cost.above, 0.1 * cost.added);
}

/// A prompt on the tensor cores: part of attention's time, and no other op's, is waiting for tiles.
TEST_F(CudaWaitsTest, AttentionOfAPromptWaitsForTiles) {
  use_fast_kernels();
  Recorder recorder;
  Faults faults;
  faults.prompt_tokens = 60;
  const Attribution result = attribute(run_.run(recorder, faults));
  const auto& steps = result.steps[static_cast<std::size_t>(control_.rank())];
  const AttributedStep& prefill = steps.front();
  ASSERT_EQ(prefill.record.prefill_tokens, 60);
  double attention = 0;
  for (const TimeSpan& span : recorder.spans()) {
    if (span.activity != Activity::kAttend || span.step != prefill.record.step) {
      EXPECT_EQ(span.tile_share, 0) << name(span.activity) << " of step " << span.step;
      continue;
    }
    EXPECT_GT(span.tile_share, 0.05f);
    EXPECT_LT(span.tile_share, 0.95f);
    attention += static_cast<double>(span.end_ns - span.begin_ns);
  }
  EXPECT_GT(prefill.ns(WaitRow::kTiles, Activity::kAttend), 0.03 * attention);
  EXPECT_LT(prefill.ns(WaitRow::kTiles), attention);
  EXPECT_EQ(steps.back().ns(WaitRow::kTiles), 0);
}

/// Both types: sums over ranks are kernels of their own, or the end of a matmul's kernel.
TEST_F(CudaWaitsTest, StampsAreInOrderAndCoverTheSteps) {
  for (const bool fast : {false, true}) {
    if (fast) use_fast_kernels();
    Recorder recorder;
    const auto logs = run_.run(recorder, {});
    std::size_t stamped = 0, kernels = 0, sums = 0, fences = 0;
    for (const TimeSpan& span : recorder.spans()) {
      EXPECT_LE(span.begin_ns, span.end_ns) << name(span.activity);
      if (span.lane != Lane::kCompute || span.layer < 0) continue;
      stamped += span.activity == Activity::kDown ? 1 : 0;
      sums += span.activity == Activity::kAllReduce ? 1 : 0;
      kernels += static_cast<std::size_t>(span.kernels);
      // Of a prompt, eager, the host may be too slow to tell.
      fences += span.activity == Activity::kDown && span.fence_ns > 100 ? 1 : 0;
    }
    EXPECT_GT(stamped, 35u);
    EXPECT_GE(kernels, 4 * stamped);
    EXPECT_GE(fences, stamped - 4);
    if (control_.size() > 1) {
      EXPECT_GT(sums, 35u);
    }
    WaitsRun::expect_nearly_all_explained(attribute(logs));
  }
}

}  // namespace
}  // namespace tandem::runtime
