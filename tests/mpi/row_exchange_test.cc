// SPDX-License-Identifier: Apache-2.0
#include "comm/row_exchange.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/device/cpu/context.h"
#include "kernels/device/dtype.h"
#include "support/mpi_world.h"

namespace tandem::comm {
namespace {

constexpr std::int64_t kRows = 7, kHidden = 24;

std::vector<float> values(int seed) {
  std::vector<float> result;
  for (std::int64_t i = 0; i < kRows * kHidden; ++i)
    result.push_back(std::sin(static_cast<float>(i * 13 + seed * 7919)));
  return result;
}

struct Activations {
  std::vector<float> residual = values(100), normed = std::vector<float>(kRows * kHidden, -9.0f);
  std::vector<float> weight = std::vector<float>(kHidden, 1.5f);

  kernels::AddNormArgs<float, Cpu> args() {
    kernels::AddNormArgs<float, Cpu> args;
    args.residual = {residual.data(), kRows, kHidden};
    args.normed = {normed.data(), kRows, kHidden};
    args.next_norm = {weight.data(), 1e-5f};
    return args;
  }
};

TEST(RowExchange, TwoCallsEqualAnAllReduceAndItsNorm) {
  ControlPlane control(tandem::testing::world());
  Communicator<Cpu> comm(control);
  RowExchange<Cpu> exchange(comm);
  Context<Cpu> ctx(1);
  Activations dealt, whole;
  ASSERT_TRUE(exchange.takes(dealt.args()));
  const RowRange own = rows_of_rank(kRows, comm.rank(), comm.size());
  for (const int call : {0, 1}) {
    std::vector<float> partial = values(call * 10 + comm.rank()), copy = partial;
    auto plain = whole.args();
    plain.branch = {copy.data(), kRows, kHidden};
    comm.reduce_add_norm(ctx, TensorView<float, Cpu>(copy.data(), kRows, kHidden), plain);
    exchange.reduce_add_norm(ctx, TensorView<float, Cpu>(partial.data(), kRows, kHidden),
                             dealt.args(), {true, true, call == 1});
    EXPECT_EQ(dealt.normed, whole.normed) << "call " << call;
    for (std::int64_t i = 0; i < kRows * kHidden; ++i)
      if (call == 1 || (i >= own.begin * kHidden && i < own.end * kHidden)) {
        ASSERT_EQ(dealt.residual[static_cast<std::size_t>(i)],
                  whole.residual[static_cast<std::size_t>(i)])
            << "call " << call << " element " << i;
      }
  }
}

TEST(RowExchange, RowsAreDealtWithoutGapsToAll) {
  for (const std::int64_t rows : {1, 2, 7, 4096}) {
    std::int64_t next = 0;
    for (int r = 0; r < 5; ++r) {
      const RowRange range = rows_of_rank(rows, r, 5);
      EXPECT_EQ(range.begin, next);
      EXPECT_LE(range.size(), rows / 5 + 1);
      next = range.end;
    }
    EXPECT_EQ(next, rows);
  }
}

TEST(RowExchange, FewerRowsThanRanksAreNotTaken) {
  ControlPlane control(tandem::testing::world());
  Communicator<Cpu> comm(control);
  kernels::AddNormArgs<float, Cpu> args;
  args.residual.rows = comm.size() - 1;
  EXPECT_FALSE(RowExchange<Cpu>(comm).takes(args));
}

}  // namespace
}  // namespace tandem::comm
