// SPDX-License-Identifier: Apache-2.0
// Matmuls, by cuBLASLt alone and with the decode kernels, against plain sums on the host. What
// was timed is kept for the next context.
#include <cmath>
#include <filesystem>

#include "kernels/cuda/gemv.h"
#include "kernels/cuda/linear_cublaslt.h"
#include "kernels/device/cuda/graph.h"
#include "kernels/linear.h"
#include "parity/gpu.h"

namespace tandem::kernels {
namespace {

using tandem::testing::download;
using tandem::testing::poisoned;
using tandem::testing::upload;

float value(std::int64_t i, int salt) {
  return std::sin(static_cast<float>((i * 7919 + salt) % 100019));
}

template <typename T>
std::vector<T> make(std::int64_t size, int salt) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < size; ++i) values.push_back(T(value(i, salt)));
  return values;
}

/// A folder of its own per test, so that one test's timings are not another's.
struct CacheFolder {
  std::filesystem::path path;
  CacheFolder() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    path = std::filesystem::temp_directory_path() /
           concat("tandem-matmul-", info->name(), "-", ::getpid());
    std::filesystem::remove_all(path);
  }
  ~CacheFolder() { std::filesystem::remove_all(path); }
  CudaOptions options(DecodeMatmul decode_matmul = DecodeMatmul::kCublasLt) const {
    CudaOptions options;
    options.decode_matmul = decode_matmul;
    options.tuning_cache_folder = path.string();
    return options;
  }
};

struct Shape {
  std::int64_t m, n, k, x_stride;
};

/// Rounding of the output and the order of the sum are all that may differ.
template <typename T, typename Out>
void run(Context<Cuda>& ctx, const Shape& s) {
  SCOPED_TRACE(concat("m ", s.m, " n ", s.n, " k ", s.k, " stride ", s.x_stride));
  const auto x = make<T>(s.m * s.x_stride, 1), w = make<T>(s.n * s.k, 2);
  const auto x_device = upload(ctx, x);
  const LinearWeight<T, Cuda> weight(ctx, upload(ctx, w), s.n, s.k);
  const auto y_device = poisoned<Out>(ctx, s.m * s.n);
  TensorView<const T, Cuda> x_view(x_device.data(), s.m, s.k);
  x_view.stride = s.x_stride;
  matmul<T, Out>(ctx, x_view, weight, y_device.view(s.m, s.n));
  const auto y = download(ctx, y_device.data(), s.m * s.n);
  const float unit = std::is_same_v<Out, float>      ? 1e-6f
                     : std::is_same_v<Out, BFloat16> ? 4e-3f
                                                     : 5e-4f;
  // Tensor cores cut off what does not fit into the 24 bits of a sum, at each of k / 8 additions.
  const double cut = 2e-6 + static_cast<double>(s.k) / 8 * std::exp2(-24);
  // Every 1st, or on large shapes every 97th, element: the host sums slowly.
  const std::int64_t step = s.m * s.n * s.k > 50'000'000 ? 97 : 1;
  for (std::int64_t at = 0; at < s.m * s.n; at += step) {
    double want = 0, scale = 0;
    for (std::int64_t i = 0; i < s.k; ++i) {
      const double product =
          double{static_cast<float>(x[static_cast<std::size_t>(at / s.n * s.x_stride + i)])} *
          static_cast<float>(w[static_cast<std::size_t>(at % s.n * s.k + i)]);
      want += product;
      scale += std::fabs(product);
    }
    ASSERT_NEAR(static_cast<float>(y[static_cast<std::size_t>(at)]), want,
                unit * std::fabs(want) + cut * scale)
        << "row " << at / s.n << " column " << at % s.n;
  }
}

class Matmul : public tandem::testing::GpuTest {};

constexpr Shape kShapes[] = {
    {1, 64, 64, 64},      {1, 576, 576, 576},    {3, 17, 40, 40},     {2, 100, 7, 7},
    {5, 192, 1536, 1600}, {16, 960, 576, 576},   {33, 49152, 64, 64}, {64, 512, 4096, 4096},
    {257, 384, 320, 320}, {1000, 250, 128, 136},
};

TEST_F(Matmul, Float) {
  const CacheFolder folder;
  Context<Cuda> ctx(folder.options());
  for (const Shape& shape : kShapes) run<float, float>(ctx, shape);
}
TEST_F(Matmul, BFloat16) {
  const CacheFolder folder;
  for (const DecodeMatmul decode_matmul : {DecodeMatmul::kCublasLt, DecodeMatmul::kAuto}) {
    Context<Cuda> ctx(folder.options(decode_matmul));
    for (const Shape& shape : kShapes) {
      run<BFloat16, BFloat16>(ctx, shape);
      run<BFloat16, float>(ctx, shape);
    }
  }
}
TEST_F(Matmul, Float16) {
  const CacheFolder folder;
  for (const DecodeMatmul decode_matmul : {DecodeMatmul::kCublasLt, DecodeMatmul::kAuto}) {
    Context<Cuda> ctx(folder.options(decode_matmul));
    for (const Shape& shape : kShapes) {
      run<Float16, Float16>(ctx, shape);
      run<Float16, float>(ctx, shape);
    }
  }
}
TEST_F(Matmul, StreamingKernelsOfFewRows) {
  const CacheFolder folder;
  Context<Cuda> ctx(folder.options(DecodeMatmul::kStreaming));
  for (const std::int64_t m : {1, 2, 3, 4, 5, 7, 8})
    for (const auto& [n, k] :
         {std::pair{576, 576}, {17, 64}, {129, 128}, {1000, 1792}, {6144, 4096}}) {
      run<BFloat16, BFloat16>(ctx, {m, n, k, k + 8});
      run<BFloat16, float>(ctx, {m, n, k, k});
      run<Float16, Float16>(ctx, {m, n, k, k});
    }
  for (const std::int64_t m : {1, 4, 6}) run<BFloat16, BFloat16>(ctx, {m, 4096, 14336, 14336});
  EXPECT_EQ(ctx.cublaslt().num_tuned(), 0);
}
TEST_F(Matmul, SkinnyKernels) {
  const CacheFolder folder;
  Context<Cuda> ctx(folder.options(DecodeMatmul::kSkinny));
  for (const std::int64_t m : {2, 3, 5, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64})
    for (const auto& [n, k] : {std::pair{16, 64}, {576, 576}, {1040, 1792}}) {
      run<BFloat16, BFloat16>(ctx, {m, n, k, k + 8});
      run<BFloat16, float>(ctx, {m, n, k, k});
      run<Float16, Float16>(ctx, {m, n, k, k});
    }
  for (const std::int64_t m : {4, 8, 12, 32, 64}) {
    run<BFloat16, BFloat16>(ctx, {m, 1024, 14336, 14336});
    run<BFloat16, float>(ctx, {m, 49152, 192, 192});
    run<Float16, Float16>(ctx, {m, 6144, 1024, 1024});
  }
  EXPECT_EQ(ctx.cublaslt().num_tuned(), 0);
}
TEST_F(Matmul, FewerSmsSameResult) {
  const CacheFolder folder;
  Context<Cuda> ctx(folder.options());
  ctx.cublaslt().set_sm_target(100);
  run<BFloat16, BFloat16>(ctx, {512, 1024, 512, 512});
}

TEST_F(Matmul, TimesEachBucketOnceAndKeepsTheChoice) {
  const CacheFolder folder;
  {
    Context<Cuda> ctx(folder.options());
    run<BFloat16, BFloat16>(ctx, {5, 256, 512, 512});
    run<BFloat16, BFloat16>(ctx, {7, 256, 512, 512});  // The same bucket.
    EXPECT_EQ(ctx.cublaslt().num_tuned(), 1);
    run<BFloat16, BFloat16>(ctx, {9, 256, 512, 512});
    EXPECT_EQ(ctx.cublaslt().num_tuned(), 2);
    // Timed with the 96 rows of the bucket, of which fewer are there, also where x has a stride.
    run<BFloat16, BFloat16>(ctx, {65, 256, 512, 520});
    run<BFloat16, BFloat16>(ctx, {96, 256, 512, 520});
    EXPECT_EQ(ctx.cublaslt().num_tuned(), 3);
    ctx.cublaslt().set_tuning(false);
    run<BFloat16, BFloat16>(ctx, {40, 256, 512, 512});
    EXPECT_EQ(ctx.cublaslt().num_tuned(), 3);
  }
  Context<Cuda> again(folder.options());
  run<BFloat16, BFloat16>(again, {6, 256, 512, 512});
  EXPECT_EQ(again.cublaslt().num_tuned(), 0);
}

TEST_F(Matmul, NeverTimesInACapture) {
  const CacheFolder folder;
  Context<Cuda> ctx(folder.options());
  const auto x = upload(ctx, make<BFloat16>(4 * 64, 1));
  const LinearWeight<BFloat16, Cuda> w(ctx, upload(ctx, make<BFloat16>(64 * 64, 2)), 64, 64);
  const auto y = poisoned<BFloat16>(ctx, 4 * 64), direct = poisoned<BFloat16>(ctx, 4 * 64);
  const TensorView<const BFloat16, Cuda> x_view(x.data(), 4, 64);
  auto graph =
      Graph<Cuda>::capture(ctx, [&] { matmul<BFloat16, BFloat16>(ctx, x_view, w, y.view(4, 64)); });
  EXPECT_EQ(ctx.cublaslt().num_tuned(), 0);
  EXPECT_NO_THROW(graph.require_domains(0, 0));
  graph.launch(ctx.compute());
  matmul<BFloat16, BFloat16>(ctx, x_view, w, direct.view(4, 64));
  const auto a = download(ctx, y.data(), 256), b = download(ctx, direct.data(), 256);
  EXPECT_EQ(std::memcmp(a.data(), b.data(), 512), 0);
}

TEST_F(Matmul, KeepsWhichKernelMultipliesFewRows) {
  const CacheFolder folder;
  const auto x = make<BFloat16>(64 * 1024, 1), w = make<BFloat16>(512 * 1024, 2);
  const std::vector<std::int64_t> rows{1, 4, 8, 16, 33, 64};
  const auto choices = [&](Context<Cuda>& ctx) {
    const auto x_device = upload(ctx, x), w_device = upload(ctx, w);
    const auto y = poisoned<BFloat16>(ctx, 64 * 512);
    std::vector<DecodeKernel> kernels;
    for (const std::int64_t m : rows)
      kernels.push_back(decode_kernel(
          ctx,
          matmul_shape(TensorView<const BFloat16, Cuda>(x_device.data(), m, 1024), y.view(m, 512)),
          x_device.data(), w_device.data(), y.data()));
    return kernels;
  };
  Context<Cuda> first(folder.options(DecodeMatmul::kAuto));
  const auto chosen = choices(first);
  EXPECT_EQ(first.cublaslt().num_choices_timed(), static_cast<int>(rows.size()));
  EXPECT_EQ(choices(first), chosen);
  EXPECT_EQ(first.cublaslt().num_choices_timed(), static_cast<int>(rows.size()));
  Context<Cuda> second(folder.options(DecodeMatmul::kAuto));
  EXPECT_EQ(choices(second), chosen);
  EXPECT_EQ(second.cublaslt().num_choices_timed(), 0);
  EXPECT_EQ(second.cublaslt().num_tuned(), 0);
}

}  // namespace
}  // namespace tandem::kernels
