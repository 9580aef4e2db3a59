// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/device/cpu/context.h"
#include "kernels/device/dtype.h"
#include "support/mpi_world.h"

namespace tandem::comm {
namespace {

/// Whole numbers that differ by rank and place: sums of four are exact in bf16 too.
float input(int rank, std::int64_t i) { return static_cast<float>((rank + 1) * (i % 7 - 3)); }
float expected_sum(int ranks, std::int64_t i) {
  return static_cast<float>(ranks * (ranks + 1) / 2 * (i % 7 - 3));
}

/// Through memory that ranks share, then by messages alone.
template <typename Body>
void in_both_ways(int threads, const Body& body) {
  ControlPlane control(tandem::testing::world());
  Context<Cpu> ctx(threads);
  for (const bool share : {true, false}) {
    SCOPED_TRACE(share ? "shared memory" : "messages");
    Communicator<Cpu> comm(control, share);
    body(comm, ctx);
  }
}

template <typename T>
class AllReduceTyped : public ::testing::Test {};
using Types = ::testing::Types<float, BFloat16, Float16>;
TYPED_TEST_SUITE(AllReduceTyped, Types);

TYPED_TEST(AllReduceTyped, SumsClosedFormAtAllSizes) {
  in_both_ways(1, [](Communicator<Cpu>& comm, Context<Cpu>& ctx) {
    for (const std::int64_t size :
         {0, 1, 2, 3, 7, 576, 8191, 8193, 16384, 16385, 16387, 100001, 131072, 131073}) {
      std::vector<TypeParam> data(static_cast<std::size_t>(size));
      for (std::int64_t i = 0; i < size; ++i)
        data[static_cast<std::size_t>(i)] = TypeParam(input(comm.rank(), i));
      comm.all_reduce_sum(ctx, Span<TypeParam, Cpu>{data.data(), size});
      for (std::int64_t i = 0; i < size; ++i)
        ASSERT_EQ(static_cast<float>(data[static_cast<std::size_t>(i)]),
                  expected_sum(comm.size(), i))
            << "size " << size << " element " << i;
    }
  });
}

/// Values whose sum depends on order and rounding.
float rough(int rank, std::int64_t i) {
  return std::sin(static_cast<float>(i * 13 + rank * 7919)) *
         std::exp2(static_cast<float>(rank * 3));
}

TYPED_TEST(AllReduceTyped, RankOrderOneRoundingWhateverTheSize) {
  in_both_ways(2, [](Communicator<Cpu>& comm, Context<Cpu>& ctx) {
    constexpr std::int64_t kSmall = 301, kLarge = 50021;
    std::vector<TypeParam> small, large;
    for (std::int64_t i = 0; i < kLarge; ++i) {
      large.push_back(TypeParam(rough(comm.rank(), i)));
      if (i < kSmall) small.push_back(large.back());
    }
    comm.all_reduce_sum(ctx, Span<TypeParam, Cpu>{small.data(), kSmall});
    comm.all_reduce_sum(ctx, Span<TypeParam, Cpu>{large.data(), kLarge});
    for (std::int64_t i = 0; i < kLarge; ++i) {
      float sum = static_cast<float>(TypeParam(rough(0, i)));
      for (int r = 1; r < comm.size(); ++r) sum += static_cast<float>(TypeParam(rough(r, i)));
      const float expected = static_cast<float>(TypeParam(sum));
      ASSERT_EQ(static_cast<float>(large[static_cast<std::size_t>(i)]), expected) << i;
      if (i < kSmall) {
        ASSERT_EQ(static_cast<float>(small[static_cast<std::size_t>(i)]), expected) << i;
      }
    }
  });
}

TEST(AllReduce, SpansMoreThanOnePiece) {
  in_both_ways(1, [](Communicator<Cpu>& comm, Context<Cpu>& ctx) {
    const std::int64_t size = (64 << 20) / 2 + 5;  // bf16: one whole piece and five elements
    std::vector<BFloat16> data(static_cast<std::size_t>(size));
    for (std::int64_t i = 0; i < size; ++i)
      data[static_cast<std::size_t>(i)] = BFloat16(input(comm.rank(), i));
    comm.all_reduce_sum(ctx, Span<BFloat16, Cpu>{data.data(), size});
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < size; ++i)
      wrong +=
          static_cast<float>(data[static_cast<std::size_t>(i)]) != expected_sum(comm.size(), i);
    EXPECT_EQ(wrong, 0);
  });
}

TEST(AllGather, OrdersRanks) {
  in_both_ways(1, [](Communicator<Cpu>& comm, Context<Cpu>& ctx) {
    constexpr int kCount = 33;
    std::vector<int> mine(kCount), out(static_cast<std::size_t>(kCount * comm.size()), -1);
    for (int i = 0; i < kCount; ++i) mine[static_cast<std::size_t>(i)] = comm.rank() * 1000 + i;
    comm.all_gather(ctx, mine.data(), out.data(), kCount * sizeof(int));
    for (int r = 0; r < comm.size(); ++r)
      for (int i = 0; i < kCount; ++i)
        EXPECT_EQ(out[static_cast<std::size_t>(r * kCount + i)], r * 1000 + i);
  });
}

TEST(AllGather, UnevenPartsSomeEmpty) {
  in_both_ways(1, [](Communicator<Cpu>& comm, Context<Cpu>& ctx) {
    std::vector<std::int64_t> counts;
    std::vector<std::uint8_t> expected;
    for (int r = 0; r < comm.size(); ++r) {
      counts.push_back(r == 1 ? 0 : 5 * r + 3);
      for (std::int64_t i = 0; i < counts.back(); ++i)
        expected.push_back(static_cast<std::uint8_t>(r * 40 + i));
    }
    std::vector<std::uint8_t> mine, out(expected.size(), 255);
    for (std::int64_t i = 0; i < counts[static_cast<std::size_t>(comm.rank())]; ++i)
      mine.push_back(static_cast<std::uint8_t>(comm.rank() * 40 + i));
    comm.all_gather_v(ctx, mine.data(), out.data(), counts);
    EXPECT_EQ(out, expected);
  });
}

}  // namespace
}  // namespace tandem::comm
