// SPDX-License-Identifier: Apache-2.0
// Prefill in two overlapped halves between real CUDA ranks equals the plain order: the schedule
// itself on streams and NCCL, and whole engines on a tiny model. Ranks share GPUs when there are
// fewer GPUs than ranks: right, but slow.
#include <cmath>
#include <filesystem>
#include <optional>

#include "comm/cuda_communicator.h"
#include "kernels/device/cuda/event.h"
#include "kernels/device/cuda/stamps.h"
#include "kernels/linear.h"
#include "parallel/overlap.h"
#include "parallel/shard.h"
#include "parity/gpu.h"
#include "runtime/cache_plan.h"
#include "runtime/engine_config.h"
#include "runtime/model_report.h"
#include "runtime/scheduler.h"
#include "support/mpi_world.h"

namespace tandem {
namespace {

using testing::download;
using testing::upload;

std::vector<float> values(std::int64_t size, int seed, float scale) {
  std::vector<float> result;
  for (std::int64_t i = 0; i < size; ++i)
    result.push_back(scale * std::sin(static_cast<float>(i * 13 + seed * 7919)));
  return result;
}

int gpu_of_rank() {
  const auto gpus = static_cast<int>(query_devices().devices.size());
  return testing::world().local_rank() % gpus;
}

class CudaOverlap : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::gpu_missing().empty()) GTEST_SKIP() << testing::gpu_missing();
    if (testing::world().size() == 1) GTEST_SKIP() << "one rank";
  }
};

/// x <- norm(x + sum over ranks of x W^T), a few times, with the sums beside or in their place.
class Stack {
 public:
  static constexpr std::int64_t kRows = 96, kFirst = 40, kHidden = 1024;
  static constexpr int kStages = 6;

  Stack(Context<Cuda>& ctx, comm::Communicator<Cuda>& comm)
      : ctx_(ctx),
        comm_(comm),
        weight_(ctx, upload(ctx, values(kHidden * kHidden, 3 + comm.rank(), 0.02f)), kHidden,
                kHidden),
        norm_(upload(ctx, std::vector<float>(kHidden, 1.0f))),
        residual_(upload(ctx, values(kRows * kHidden, 1, 1.0f))),
        normed_(upload(ctx, values(kRows * kHidden, 2, 1.0f))),
        partial_(kRows * kHidden) {}

  std::vector<float> run(bool overlapped) {
    const auto compute = [&](std::int64_t first, std::int64_t rows) {
      const auto x = of(normed_, first, rows);
      kernels::matmul<float, float>(ctx_, {x.data, x.rows, x.cols}, weight_,
                                    of(partial_, first, rows));
    };
    const auto span = [&](std::int64_t first, std::int64_t rows) {
      return Span<float, Cuda>{partial_.data() + first * kHidden, rows * kHidden};
    };
    const auto finish = [&](std::int64_t first, std::int64_t rows) {
      kernels::AddNormArgs<float, Cuda> args;
      const auto branch = of(partial_, first, rows);
      args.branch = {branch.data, branch.rows, branch.cols};
      args.residual = of(residual_, first, rows);
      args.next_norm = {norm_.data(), 1e-5f};
      args.normed = of(normed_, first, rows);
      kernels::add_norm(ctx_, args);
    };
    const auto first_of = [](int which) { return which == 0 ? 0 : kFirst; };
    const auto rows_of = [](int which) { return which == 0 ? kFirst : kRows - kFirst; };
    if (overlapped) {
      parallel::OverlapSchedule<Cuda> schedule;
      comm_.share_device(ctx_, true);
      schedule.run(
          ctx_, kStages, [&](int, int which) { compute(first_of(which), rows_of(which)); },
          [&](int, int which) {
            comm_.all_reduce_sum_beside(ctx_, span(first_of(which), rows_of(which)));
          },
          [&](int, int which) { finish(first_of(which), rows_of(which)); });
      comm_.share_device(ctx_, false);
    } else {
      for (int stage = 0; stage < kStages; ++stage) {
        compute(0, kRows);
        comm_.all_reduce_sum(ctx_, span(0, kRows));
        finish(0, kRows);
      }
    }
    return download(ctx_, normed_.data(), kRows * kHidden);
  }

 private:
  static TensorView<float, Cuda> of(const Buffer<float, Cuda>& buffer, std::int64_t first,
                                    std::int64_t rows) {
    return buffer.view(kRows, kHidden).slice_rows(first, rows);
  }
  Context<Cuda>& ctx_;
  comm::Communicator<Cuda>& comm_;
  kernels::LinearWeight<float, Cuda> weight_;
  Buffer<float, Cuda> norm_, residual_, normed_, partial_;
};

TEST_F(CudaOverlap, ScheduleEqualsThePlainOrder) {
  comm::ControlPlane control(testing::world());
  CudaOptions options;
  options.device = gpu_of_rank();
  Context<Cuda> ctx(options);
  comm::CudaCommunicatorOptions comm_options;
  comm_options.allow_shared_gpu = true;
  comm::Communicator<Cuda> comm(ctx, control, comm_options);
  const std::vector<float> plain = Stack(ctx, comm).run(false);
  for (int repeat = 0; repeat < 5; ++repeat) {
    const std::vector<float> overlapped = Stack(ctx, comm).run(true);
    for (std::size_t i = 0; i < plain.size(); ++i)
      ASSERT_NEAR(plain[i], overlapped[i], 2e-4f) << "repeat " << repeat << " element " << i;
    const auto all = control.all_gather(std::string(
        reinterpret_cast<const char*>(overlapped.data()), overlapped.size() * sizeof(float)));
    for (const std::string& bytes : all) EXPECT_TRUE(bytes == all[0]);
  }
}

/// Greedy tokens of several prompts of different lengths, prefilled in one step.
std::vector<std::vector<std::int32_t>> generate(const std::filesystem::path& folder,
                                                runtime::OverlapMode overlap) {
  comm::ControlPlane control(testing::world());
  const runtime::ModelConfig config = runtime::read_model_config(folder);
  const runtime::Checkpoint checkpoint = runtime::Checkpoint::open(folder);
  runtime::EngineConfig sizes;
  sizes.dtype = DType::kF32;
  sizes.max_model_len = 128;
  sizes.max_num_seqs = 8;
  sizes.max_num_batched_tokens = 96;
  sizes.kv_cache_bytes = 64 << 20;
  sizes.kv_segment_bytes = 2 << 20;
  sizes.overlap = overlap;
  sizes.cuda.device = gpu_of_rank();
  sizes.cuda.allow_shared_gpu = true;
  sizes.cuda.memory_utilization = 0.2;
  sizes.cuda.enforce_eager = true;
  runtime::LoadReport report;
  const auto engine = runtime::make_cuda_engine(control, config, checkpoint, sizes, &report);
  runtime::Scheduler scheduler({engine->limits(), true, {}});
  std::vector<std::vector<std::int32_t>> texts(4);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    runtime::Request request;
    request.id = static_cast<runtime::RequestId>(i);
    for (std::size_t t = 0; t < 9 + 7 * i; ++t)
      request.prompt.push_back(static_cast<std::int32_t>((t * 37 + i * 11) % 200));
    request.params.max_tokens = 8;
    request.params.ignore_eos = true;
    scheduler.add(request);
  }
  while (!scheduler.idle()) {
    const runtime::BatchPlan plan = scheduler.plan();
    engine->submit(plan);
    for (const runtime::TokenEvent& event : scheduler.commit(engine->collect()))
      if (event.token >= 0) texts[static_cast<std::size_t>(event.request)].push_back(event.token);
  }
  return texts;
}

TEST_F(CudaOverlap, EnginesGiveTheSameText) {
  const auto folder = std::filesystem::path(TANDEM_FIXTURES) / "models" / "llama-9q3kv";
  const auto config = runtime::read_model_config(folder);
  if (testing::world().size() > parallel::max_tensor_parallel_size(runtime::shard_shape(config)))
    GTEST_SKIP() << "the model has too few heads or columns for this many ranks";
  const auto plain = generate(folder, runtime::OverlapMode::kOff);
  for (const auto& text : plain) EXPECT_EQ(text.size(), 8u);
  EXPECT_EQ(generate(folder, runtime::OverlapMode::kOn), plain);
}

}  // namespace
}  // namespace tandem
