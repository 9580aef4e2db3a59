// SPDX-License-Identifier: Apache-2.0
// The all-reduce fused with bias, norms and residual, n ranks as n buffers of this process, against
// plain loops on the host. All ranks must hold equal bits.
#include <cmath>
#include <cstdlib>

#include "comm/peer_memory.h"
#include "kernels/cuda/all_reduce.h"
#include "parity/gpu.h"

namespace tandem::kernels {
namespace {

using tandem::testing::download;
using tandem::testing::upload;

const int kQueuesSet = ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);

struct Case {
  int ranks;
  std::int64_t rows, hidden;
  bool bias, post_norm, next_norm;
  float scale;
  PeerAlgorithm algorithm;
  std::int32_t row_blocks = 0;
};

float noise(std::int64_t i, int salt) {
  return std::sin(static_cast<float>(i % 100003) * 1.7f + static_cast<float>(salt) * 37.0f);
}

template <typename T>
struct Reference {
  std::vector<float> residual, normed;
};

template <typename T>
float inverse_rms(const std::vector<float>& x, float eps) {
  double squares = 0;
  for (const float value : x) squares += double{value} * value;
  return static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(x.size()) + eps));
}

template <typename T>
Reference<T> reference(const Case& c, const std::vector<std::vector<T>>& partials,
                       const std::vector<T>& residual, const std::vector<float>& bias,
                       const std::vector<float>& post, const std::vector<float>& next) {
  Reference<T> out;
  const auto hidden = static_cast<std::size_t>(c.hidden);
  for (std::size_t row = 0; row < static_cast<std::size_t>(c.rows); ++row) {
    std::vector<float> x(hidden);
    for (std::size_t i = 0; i < hidden; ++i) {
      float sum = static_cast<float>(partials[0][row * hidden + i]);
      for (int r = 1; r < c.ranks; ++r)
        sum += static_cast<float>(partials[static_cast<std::size_t>(r)][row * hidden + i]);
      x[i] = static_cast<float>(T(sum)) + (c.bias ? bias[i] : 0.0f);
    }
    const float post_inverse = c.post_norm ? inverse_rms<T>(x, 1e-6f) : 1.0f;
    for (std::size_t i = 0; i < hidden; ++i) {
      const float branch = c.post_norm ? x[i] * post_inverse * post[i] : x[i];
      x[i] =
          static_cast<float>(T(static_cast<float>(residual[row * hidden + i]) + c.scale * branch));
    }
    const float inverse = c.next_norm ? inverse_rms<T>(x, 1e-5f) : 1.0f;
    for (std::size_t i = 0; i < hidden; ++i) {
      out.residual.push_back(x[i]);
      out.normed.push_back(static_cast<float>(T(c.next_norm ? x[i] * inverse * next[i] : x[i])));
    }
  }
  return out;
}

template <typename T>
void expect_near(const std::vector<T>& got, const std::vector<float>& want, const char* what) {
  const float unit = std::is_same_v<T, float> ? 2e-6f : std::is_same_v<T, BFloat16> ? 8e-3f : 1e-3f;
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(static_cast<float>(got[i]), want[i], unit * (1.0f + std::fabs(want[i])))
        << what << " element " << i;
}

template <typename T>
void run_case(Context<Cuda>& ctx, const Case& c) {
  SCOPED_TRACE(concat(c.ranks, " ranks, ", c.rows, "x", c.hidden, ", algorithm ",
                      static_cast<int>(c.algorithm), c.bias ? " bias" : "",
                      c.post_norm ? " post" : "", c.next_norm ? " next" : ""));
  const auto memory = comm::local_peers(c.ranks);
  const std::int64_t size = c.rows * c.hidden;
  std::vector<float> bias, post, next;
  for (std::int64_t i = 0; i < c.hidden; ++i) {
    bias.push_back(noise(i, 1));
    post.push_back(1.0f + 0.3f * noise(i, 2));
    next.push_back(1.0f + 0.3f * noise(i, 3));
  }
  std::vector<T> residual;
  for (std::int64_t i = 0; i < size; ++i) residual.push_back(T(noise(i, 4)));
  const auto bias_device = upload(ctx, bias), post_device = upload(ctx, post),
             next_device = upload(ctx, next);
  std::vector<std::vector<T>> partials;
  std::vector<Buffer<T, Cuda>> partial, residuals, normed;
  std::vector<Stream<Cuda>> streams;
  for (int r = 0; r < c.ranks; ++r) {
    partials.emplace_back();
    for (std::int64_t i = 0; i < size; ++i) partials.back().push_back(T(noise(i, 10 + r)));
    partial.push_back(upload(ctx, partials.back()));
    residuals.push_back(upload(ctx, residual));
    normed.push_back(tandem::testing::poisoned<T>(ctx, size));
    streams.emplace_back(Stream<Cuda>::Priority::kNormal, SyncDomain{});
  }
  for (int r = 0; r < c.ranks; ++r) {
    const auto i = static_cast<std::size_t>(r);
    PeerView view = memory[i]->view();
    view.max_blocks = kPeerBlocks / c.ranks;
    view.row_blocks = c.row_blocks;
    AddNormArgs<T, Cuda> args;
    args.bias = c.bias ? bias_device.data() : nullptr;
    if (c.post_norm) args.post_norm = {post_device.data(), 1e-6f};
    if (c.next_norm) args.next_norm = {next_device.data(), 1e-5f};
    args.scale = c.scale;
    args.residual = residuals[i].view(c.rows, c.hidden);
    args.normed = normed[i].view(c.rows, c.hidden);
    const auto input = partial[i].view(c.rows, c.hidden);
    ASSERT_TRUE(can_reduce_add_norm(view, c.algorithm, input, args));
    peer_reduce_add_norm(ctx, streams[i], view, c.algorithm, input, args);
  }
  for (auto& stream : streams) stream.synchronize();
  const auto want = reference<T>(c, partials, residual, bias, post, next);
  const auto first_residual = download(ctx, residuals[0].data(), size);
  const auto first_normed = download(ctx, normed[0].data(), size);
  expect_near(first_residual, want.residual, "residual");
  expect_near(first_normed, want.normed, "normed");
  for (int r = 1; r < c.ranks; ++r) {
    const auto i = static_cast<std::size_t>(r);
    const std::size_t bytes = static_cast<std::size_t>(size) * sizeof(T);
    EXPECT_EQ(
        std::memcmp(download(ctx, residuals[i].data(), size).data(), first_residual.data(), bytes),
        0);
    EXPECT_EQ(std::memcmp(download(ctx, normed[i].data(), size).data(), first_normed.data(), bytes),
              0);
  }
}

template <typename T>
class ReduceAddNorm : public tandem::testing::GpuTest {};
using Types = ::testing::Types<float, BFloat16, Float16>;
TYPED_TEST_SUITE(ReduceAddNorm, Types);

TYPED_TEST(ReduceAddNorm, MatchesTheHostOnAllRanks) {
  Context<Cuda> ctx(CudaOptions{});
  const Case cases[] = {
      {2, 1, 4096, false, false, true, 1.0f, PeerAlgorithm::kPush},
      {2, 4, 64, true, false, true, 1.0f, PeerAlgorithm::kPush},
      {3, 2, 576, true, true, true, 0.25f, PeerAlgorithm::kPush},
      {8, 1, 8192, false, false, true, 1.0f, PeerAlgorithm::kPush},
      {2, 33, 4096, false, true, true, 1.0f, PeerAlgorithm::kPull},
      {4, 7, 2880, true, false, false, 1.0f, PeerAlgorithm::kPull},
      {8, 17, 1024, false, false, true, 0.5f, PeerAlgorithm::kPull},
      {2, 64, 4096, false, false, true, 1.0f, PeerAlgorithm::kTwoShot},
      {3, 5, 576, true, true, true, 1.0f, PeerAlgorithm::kTwoShot},
      {8, 40, 512, false, false, true, 1.0f, PeerAlgorithm::kTwoShot},
      // Blocks with several rows, clusters with several sums.
      {2, 70, 1000, true, true, true, 1.0f, PeerAlgorithm::kPush},
      {2, 6, 4096, true, true, true, 1.0f, PeerAlgorithm::kPush, 8},
      {4, 9, 2048, true, true, true, 1.0f, PeerAlgorithm::kPush, 2},
      {2, 40, 8192, true, true, true, 0.5f, PeerAlgorithm::kPull, 8},
      {2, 3, 4104, true, false, true, 1.0f, PeerAlgorithm::kPull},
  };
  for (const Case& c : cases) run_case<TypeParam>(ctx, c);
}

}  // namespace
}  // namespace tandem::kernels
