// SPDX-License-Identifier: Apache-2.0
// Rows dealt to CUDA ranks and moved by copy engines: the same bits as an all-reduce in rank order
// with its norm, many calls back to back. Ranks share GPUs when there are fewer GPUs than ranks.
#include "comm/row_exchange_cuda.h"

#include <cmath>
#include <cstring>

#include "kernels/cuda/sum_add_norm.h"
#include "kernels/device/device_info.h"
#include "parity/gpu.h"
#include "support/mpi_world.h"

namespace tandem::comm {
namespace {

using tandem::testing::download;
using tandem::testing::upload;

template <typename T>
std::vector<T> values(std::int64_t size, int seed) {
  std::vector<T> result;
  for (std::int64_t i = 0; i < size; ++i)
    result.push_back(T(std::sin(static_cast<float>(i % 100003 * 13 + seed * 7919))));
  return result;
}

class CudaRowExchange : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!tandem::testing::gpu_missing().empty()) GTEST_SKIP() << tandem::testing::gpu_missing();
    if (tandem::testing::world().size() == 1) GTEST_SKIP() << "one rank";
    const auto gpus = static_cast<int>(query_devices().devices.size());
    CudaOptions options;
    options.device = tandem::testing::world().local_rank() % gpus;
    ctx_ = std::make_unique<Context<Cuda>>(options);
  }

  /// `calls` calls on rows [first, first + count) of activations of `rows` rows.
  template <typename T>
  void run(std::int64_t rows, std::int64_t hidden, std::int64_t first, std::int64_t count,
           int calls) {
    SCOPED_TRACE(concat(rows, "x", hidden, " rows ", first, "+", count));
    const std::int64_t size = rows * hidden;
    const int ranks = control_.size();
    const Buffer<T, Cuda> residual = upload(*ctx_, values<T>(size, 500)),
                          normed = tandem::testing::poisoned<T>(*ctx_, size);
    const auto weight = upload(*ctx_, std::vector<float>(static_cast<std::size_t>(hidden), 1.5f));
    std::vector<std::vector<Buffer<T, Cuda>>> all(static_cast<std::size_t>(calls));
    for (int call = 0; call < calls; ++call)
      for (int r = 0; r < ranks; ++r)
        all[static_cast<std::size_t>(call)].push_back(
            upload(*ctx_, values<T>(count * hidden, call * 10 + r)));
    std::string why;
    ExchangedRows exchanged{reinterpret_cast<std::byte*>(residual.data()),
                            reinterpret_cast<std::byte*>(normed.data()), rows,
                            hidden * static_cast<std::int64_t>(sizeof(T))};
    const auto exchange = RowExchange<Cuda>::connect(*ctx_, control_, exchanged, why);
    ASSERT_NE(exchange, nullptr) << why;
    copy_to_device(*ctx_, residual.data(), values<T>(size, 500).data(), residual.size_bytes());
    kernels::AddNormArgs<T, Cuda> args;
    args.residual = residual.view(rows, hidden).slice_rows(first, count);
    args.normed = normed.view(rows, hidden).slice_rows(first, count);
    args.next_norm = {weight.data(), 1e-5f};
    ASSERT_TRUE(exchange->takes(args));
    ctx_->compute().synchronize();
    control_.barrier();
    for (int call = 0; call < calls; ++call)
      exchange->reduce_add_norm(
          *ctx_,
          all[static_cast<std::size_t>(call)][static_cast<std::size_t>(control_.rank())].view(
              count, hidden),
          args, {true, true, call == calls - 1});
    ctx_->comm().synchronize();
    expect_plain<T>(all, residual, normed, args, weight, first * hidden);
  }

  /// What one rank alone makes of all parts.
  template <typename T>
  void expect_plain(const std::vector<std::vector<Buffer<T, Cuda>>>& all,
                    const Buffer<T, Cuda>& residual, const Buffer<T, Cuda>& normed,
                    const kernels::AddNormArgs<T, Cuda>& got, const Buffer<float, Cuda>& weight,
                    std::int64_t offset) {
    const std::int64_t count = got.residual.rows, hidden = got.residual.cols, size = count * hidden;
    const auto start = values<T>(residual.size(), 500);
    const auto plain_residual =
        upload(*ctx_, std::vector<T>(start.begin() + offset, start.begin() + offset + size));
    const auto plain_normed = tandem::testing::poisoned<T>(*ctx_, size);
    kernels::AddNormArgs<T, Cuda> args;
    args.residual = plain_residual.view(count, hidden);
    args.normed = plain_normed.view(count, hidden);
    args.next_norm = {weight.data(), 1e-5f};
    for (const auto& parts : all) {
      kernels::SumParts<T> sum;
      for (const auto& part : parts) sum.parts[static_cast<std::size_t>(sum.size++)] = part.data();
      kernels::sum_add_norm(*ctx_, ctx_->compute(), sum, args);
    }
    const auto bytes = static_cast<std::size_t>(size) * sizeof(T);
    const auto want_normed = download(*ctx_, plain_normed.data(), size),
               got_normed = download(*ctx_, normed.data() + offset, size),
               want_residual = download(*ctx_, plain_residual.data(), size),
               got_residual = download(*ctx_, residual.data() + offset, size);
    EXPECT_EQ(std::memcmp(got_normed.data(), want_normed.data(), bytes), 0) << "normed";
    EXPECT_EQ(std::memcmp(got_residual.data(), want_residual.data(), bytes), 0) << "residual";
  }

  ControlPlane control_{tandem::testing::world()};
  std::unique_ptr<Context<Cuda>> ctx_;
};

TEST_F(CudaRowExchange, GivesTheBitsOfASumInRankOrder) {
  run<BFloat16>(64, 576, 0, 32, 40);
  run<BFloat16>(64, 576, 32, 31, 7);
  run<float>(2048, 1024, 500, 1024, 9);
}

TEST_F(CudaRowExchange, RefusesWhatItCannotHold) {
  const Buffer<float, Cuda> residual(64 * 64), normed(64 * 64);
  std::string why;
  const ExchangedRows exchanged{reinterpret_cast<std::byte*>(residual.data()),
                                reinterpret_cast<std::byte*>(normed.data()), 64, 256};
  const auto exchange = RowExchange<Cuda>::connect(*ctx_, control_, exchanged, why);
  ASSERT_NE(exchange, nullptr) << why;
  kernels::AddNormArgs<float, Cuda> args;
  args.residual = residual.view(control_.size() - 1, 64);
  args.normed = normed.view(control_.size() - 1, 64);
  EXPECT_FALSE(exchange->takes(args));  // A rank would have no row.
  args.residual = residual.view(64, 32);
  args.normed = normed.view(64, 32);
  EXPECT_FALSE(exchange->takes(args));  // Not the width that was agreed on.
}

}  // namespace
}  // namespace tandem::comm
