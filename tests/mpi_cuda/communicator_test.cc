// SPDX-License-Identifier: Apache-2.0
// The CUDA data plane between real ranks. Ranks share GPUs when there are fewer GPUs than ranks:
// then own kernels go over CUDA IPC and NCCL over sockets, right but slow.
#include "comm/cuda_communicator.h"

#include <cmath>

#include "kernels/device/cuda/graph.h"
#include "kernels/linear.h"
#include "parity/gpu.h"
#include "support/mpi_world.h"

namespace tandem::comm {
namespace {

using tandem::testing::download;
using tandem::testing::upload;

float rough(int rank, std::int64_t i, int call) {
  return std::sin(static_cast<float>(i * 13 + rank * 7919 + call * 523)) *
         std::exp2(static_cast<float>(rank * 2));
}

/// Made once: NCCL takes seconds to connect over sockets.
struct World {
  ControlPlane control{tandem::testing::world()};
  bool shared = false;  ///< Ranks share a GPU.
  std::unique_ptr<Context<Cuda>> ctx;
  std::unique_ptr<Communicator<Cuda>> comm;
};

class CudaRanks : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!tandem::testing::gpu_missing().empty()) return;
    world_ = std::make_unique<World>();
    const auto gpus = static_cast<int>(query_devices().devices.size());
    const MpiSession& session = tandem::testing::world();
    CudaOptions options;
    options.device = session.local_rank() % gpus;
    options.decode_matmul = DecodeMatmul::kStreaming;
    world_->shared = session.local_size() > gpus;
    world_->ctx = std::make_unique<Context<Cuda>>(options);
    if (world_->shared) {
      EXPECT_THROW(prepare_nccl(world_->control, false), ConfigError);
    }
    CudaCommunicatorOptions comm_options;
    comm_options.allow_shared_gpu = true;
    world_->comm =
        std::make_unique<Communicator<Cuda>>(*world_->ctx, world_->control, comm_options);
  }
  static void TearDownTestSuite() {
    if (world_ == nullptr) return;
    world_->comm.reset();
    world_.reset();
  }
  void SetUp() override {
    if (world_ == nullptr) GTEST_SKIP() << tandem::testing::gpu_missing();
  }

  Context<Cuda>& ctx() { return *world_->ctx; }
  Communicator<Cuda>& comm() { return *world_->comm; }

  template <typename T>
  std::vector<T> input(int rank, std::int64_t size, int call) {
    std::vector<T> values;
    for (std::int64_t i = 0; i < size; ++i) values.push_back(T(rough(rank, i, call)));
    return values;
  }
  template <typename T>
  T sum(std::int64_t i, int call) {
    float total = static_cast<float>(T(rough(0, i, call)));
    for (int r = 1; r < comm().size(); ++r) total += static_cast<float>(T(rough(r, i, call)));
    return T(total);
  }
  /// The same bytes on all ranks.
  void expect_equal_everywhere(const void* bytes, std::size_t size) {
    const auto all = world_->control.all_gather(std::string(static_cast<const char*>(bytes), size));
    for (std::size_t r = 1; r < all.size(); ++r) EXPECT_TRUE(all[r] == all[0]) << "rank " << r;
  }

  /// Whole numbers, so that sums of products are exact in any order; ranks' magnitudes differ so
  /// much that the order of ranks matters.
  std::vector<BFloat16> whole(std::int64_t size, int call, int scale) {
    std::vector<BFloat16> values;
    const auto shift = static_cast<std::int64_t>(comm().rank() * 5 + call * 3);
    for (std::int64_t i = 0; i < size; ++i)
      values.push_back(
          BFloat16(std::ldexp(static_cast<float>((i * i + i * 13 + shift) % 15 - 7), scale)));
    return values;
  }
  /// What `project_reduce_add_norm` leaves in the residual and the norm, for `m` rows. `rounds`:
  /// the ranks' products, before they are added.
  void expect_sums_of_matmul(std::int64_t m, std::int64_t hidden, bool rounds) {
    using T = BFloat16;
    constexpr int kEager = 3, kReplays = 2;
    const std::int64_t k = 64 * (comm().rank() + 2);
    const kernels::LinearWeight<T, Cuda> w(
        ctx(), upload(ctx(), whole(hidden * k, 1, 9 * comm().rank())), hidden, k);
    const auto x = upload(ctx(), whole(m * k, 2, 0));
    const std::vector<T> start = input<T>(0, m * hidden, 3);
    const auto residual = upload(ctx(), start);
    const Buffer<T, Cuda> partial(m * hidden), normed(m * hidden);
    const Buffer<float, Cuda> product(m * hidden);
    const auto weight = upload(ctx(), std::vector<float>(static_cast<std::size_t>(hidden), 1.5f));
    const TensorView<const T, Cuda> x_view(x.data(), m, k);
    kernels::matmul<T, float>(ctx(), x_view, w, product.view(m, hidden));
    auto own = download(ctx(), product.data(), product.size());
    for (float& value : own)
      if (rounds) value = static_cast<float>(T(value));
    const auto all = world_->control.all_gather(
        std::string(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(float)));

    kernels::DeferredNorm<T, Cuda> deferred;
    kernels::AddNormArgs<T, Cuda> args;
    args.branch = {partial.data(), m, hidden};
    args.scale = 0.75f;
    args.residual = residual.view(m, hidden);
    args.next_norm = {weight.data(), 1e-5f};
    args.normed = normed.view(m, hidden);
    args.deferred = &deferred;
    const auto call = [&] {
      ASSERT_TRUE(comm().project_reduce_add_norm(ctx(), x_view, w, partial.view(m, hidden), args,
                                                 Activity::kProject));
    };
    for (int i = 0; i < kEager; ++i) call();
    Graph<Cuda> graph = Graph<Cuda>::capture(ctx(), call);
    for (int i = 0; i < kReplays; ++i) graph.launch(ctx().compute());
    const auto got = download(ctx(), residual.data(), residual.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      float total = 0;
      for (const std::string& rank : all) total += reinterpret_cast<const float*>(rank.data())[i];
      T want = start[i];
      for (int n = 0; n < kEager + kReplays; ++n)
        want = T(std::fma(0.75f, total, static_cast<float>(want)));
      ASSERT_EQ(got[i].bits, want.bits) << m << " x " << hidden << ", element " << i;
    }
    kernels::apply_deferred(ctx(), &deferred);
    expect_normed(download(ctx(), normed.data(), normed.size()), got, hidden);
  }
  /// By a norm with weights of 1.5.
  void expect_normed(const std::vector<BFloat16>& rows, const std::vector<BFloat16>& of,
                     std::int64_t hidden) {
    const auto width = static_cast<std::size_t>(hidden);
    for (std::size_t row = 0; row < of.size() / width; ++row) {
      double square = 0;
      for (std::size_t i = 0; i < width; ++i)
        square += std::pow(static_cast<float>(of[row * width + i]), 2);
      const double factor = 1.5 / std::sqrt(square / static_cast<double>(hidden) + 1e-5);
      for (std::size_t i = 0; i < width; ++i) {
        const double want = static_cast<float>(of[row * width + i]) * factor;
        ASSERT_NEAR(static_cast<float>(rows[row * width + i]), want, 0.01 * std::abs(want))
            << row << " " << i;
      }
    }
  }

  static std::unique_ptr<World> world_;
};

std::unique_ptr<World> CudaRanks::world_;

TEST_F(CudaRanks, OwnKernelsSumBitwiseBackToBack) {
  if (comm().size() == 1) GTEST_SKIP() << "one rank";
  ASSERT_TRUE(comm().has_peer_memory());
  const AllReduceTable before = comm().table();
  const AllReduceTable tables[] = {{1 << 20, 0, 0}, {0, 1 << 20, 0}, {0, 0, 1 << 20}};
  constexpr std::int64_t kSize = 6007;
  constexpr int kCalls = 6;
  int call = 0;
  for (const AllReduceTable& table : tables) {
    comm().set_table(table);
    std::vector<Buffer<BFloat16, Cuda>> data;
    for (int i = 0; i < kCalls; ++i)
      data.push_back(upload(ctx(), input<BFloat16>(comm().rank(), kSize, call + i)));
    for (auto& buffer : data) comm().all_reduce_sum(ctx(), buffer.span());  // No waiting between.
    for (int i = 0; i < kCalls; ++i, ++call) {
      const auto got = download(ctx(), data[static_cast<std::size_t>(i)].data(), kSize);
      for (std::int64_t at = 0; at < kSize; ++at)
        ASSERT_EQ(got[static_cast<std::size_t>(at)].bits, sum<BFloat16>(at, call).bits)
            << "call " << call << " element " << at;
    }
  }
  comm().set_table(before);
}

/// A matmul that adds its sums over ranks where it makes them: equal to the ranks' plain products
/// added in rank order in float, bit for bit, call after call, eager and replayed. Ranks have
/// different shares of K.
TEST_F(CudaRanks, MatmulAddsItsSumsOverRanksBitwise) {
  if (comm().size() == 1) GTEST_SKIP() << "one rank";
  for (const std::int64_t m : {1, 3, 8}) expect_sums_of_matmul(m, 1048, false);
}

/// The same with more rows, whose products are rounded before they travel: some blocks with no rows
/// of W, with 16, with 32, and several results a thread. Between them the other kernel, since both
/// count exchanges and write to the same memory.
TEST_F(CudaRanks, MatmulOfManyRowsAddsItsSumsOverRanksBitwise) {
  if (comm().size() == 1) GTEST_SKIP() << "one rank";
  for (const std::int64_t m : {9, 16, 17, 32})
    for (const std::int64_t hidden : {1040, 4112, 8192}) {
      expect_sums_of_matmul(m, hidden, true);
      expect_sums_of_matmul(2, hidden, false);
    }
}

TEST_F(CudaRanks, NcclSumsOnTheCommStream) {
  constexpr std::int64_t kSize = 300001;
  const auto data = upload(ctx(), input<float>(comm().rank(), kSize, 1));
  comm().all_reduce_sum_on(ctx().comm(), data.span());
  ctx().comm().synchronize();
  const auto got = download(ctx(), data.data(), kSize);
  for (std::int64_t i = 0; i < kSize; ++i)
    ASSERT_NEAR(got[static_cast<std::size_t>(i)], sum<float>(i, 1), 1e-4);
  expect_equal_everywhere(got.data(), got.size() * sizeof(float));
  EXPECT_EQ(comm().async_error(), "");
}

TEST_F(CudaRanks, LargeMessagesLeaveTheOwnKernels) {
  constexpr std::int64_t kSize = (8 << 20) / 2 + 3;
  const auto data = upload(ctx(), std::vector<BFloat16>(kSize, BFloat16(1.0f)));
  comm().all_reduce_sum(ctx(), data.span());
  const auto got = download(ctx(), data.data(), kSize);
  for (const BFloat16 value : got)
    ASSERT_EQ(static_cast<float>(value), static_cast<float>(comm().size()));
}

TEST_F(CudaRanks, GathersUnevenParts) {
  for (const std::int64_t base : {3, 4000, 700000}) {
    std::vector<std::int64_t> counts;
    std::vector<std::uint8_t> expected;
    for (int r = 0; r < comm().size(); ++r) {
      counts.push_back(r == 1 ? 0 : base + r);
      for (std::int64_t i = 0; i < counts.back(); ++i)
        expected.push_back(static_cast<std::uint8_t>(r * 50 + i));
    }
    std::vector<std::uint8_t> mine;
    for (std::int64_t i = 0; i < counts[static_cast<std::size_t>(comm().rank())]; ++i)
      mine.push_back(static_cast<std::uint8_t>(comm().rank() * 50 + i));
    const auto mine_device = upload(ctx(), mine);
    const auto total = static_cast<std::int64_t>(expected.size());
    const auto out = tandem::testing::poisoned<std::uint8_t>(ctx(), total);
    comm().all_gather_v(ctx(), mine_device.data(), out.data(), counts);
    EXPECT_EQ(download(ctx(), out.data(), total), expected) << base;
  }
}

TEST_F(CudaRanks, ReduceAddNormIsEqualOnAllRanksByEitherPath) {
  constexpr std::int64_t kRows = 3, kHidden = 576;
  const std::vector<float> weight(kHidden, 1.5f);
  const auto weight_device = upload(ctx(), weight);
  const AllReduceTable before = comm().table();
  std::vector<std::vector<float>> normed_by;
  for (const AllReduceTable& table : {before, AllReduceTable{}}) {
    comm().set_table(table);
    const auto partial = upload(ctx(), input<float>(comm().rank(), kRows * kHidden, 5));
    const auto residual = upload(ctx(), input<float>(0, kRows * kHidden, 6));
    const auto normed = tandem::testing::poisoned<float>(ctx(), kRows * kHidden);
    kernels::AddNormArgs<float, Cuda> args;
    const auto branch = partial.view(kRows, kHidden);
    args.branch = {branch.data, branch.rows, branch.cols};
    args.next_norm = {weight_device.data(), 1e-5f};
    args.residual = residual.view(kRows, kHidden);
    args.normed = normed.view(kRows, kHidden);
    comm().reduce_add_norm(ctx(), branch, args);
    normed_by.push_back(download(ctx(), normed.data(), kRows * kHidden));
    expect_equal_everywhere(normed_by.back().data(), normed_by.back().size() * sizeof(float));
  }
  comm().set_table(before);
  for (std::size_t i = 0; i < normed_by[0].size(); ++i)
    ASSERT_NEAR(normed_by[0][i], normed_by[1][i], 1e-4f) << i;
}

TEST_F(CudaRanks, OwnKernelsReplayInAGraph) {
  if (comm().size() == 1) GTEST_SKIP() << "one rank";
  constexpr std::int64_t kSize = 1000;
  const auto source = upload(ctx(), input<float>(comm().rank(), kSize, 9));
  const Buffer<float, Cuda> work(kSize);
  auto graph = Graph<Cuda>::capture(ctx(), [&] {
    copy_on_device(ctx(), work.data(), source.data(), kSize * 4);
    comm().all_reduce_sum(ctx(), work.span());
  });
  EXPECT_NO_THROW(graph.require_domains(0, ctx().comm_domain()));
  for (int replay = 0; replay < 20; ++replay) graph.launch(ctx().compute());
  const auto got = download(ctx(), work.data(), kSize);
  for (std::int64_t i = 0; i < kSize; ++i)
    ASSERT_EQ(got[static_cast<std::size_t>(i)], sum<float>(i, 9)) << i;
}

}  // namespace
}  // namespace tandem::comm
