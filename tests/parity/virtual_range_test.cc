// SPDX-License-Identifier: Apache-2.0
#include "kvcache/virtual_range_cuda.h"

#include <thread>

#include "kernels/device/cuda/graph.h"
#include "parity/gpu.h"

namespace tandem::kvcache {
namespace {

class CudaVirtualRange : public tandem::testing::GpuTest {};

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST_F(CudaVirtualRange, GrowsInPlaceAndKeepsData) {
  Context<Cuda> ctx(CudaOptions{});
  VirtualRange<Cuda> range(1000 * kMiB, 64 * kMiB);
  EXPECT_EQ(range.mapped_bytes(), 0u);
  EXPECT_EQ(range.segment_bytes(), 64 * kMiB);
  EXPECT_EQ(range.reserved_bytes(), 1024 * kMiB);
  std::byte* const address = range.data();
  ASSERT_TRUE(range.map_to(1));
  EXPECT_EQ(range.mapped_bytes(), 64 * kMiB);
  const std::vector<int> pattern{3, 1, 4, 1, 5};
  std::byte* const edge = address + 64 * kMiB - 20;
  copy_to_device(ctx, edge, pattern.data(), 20);
  ctx.compute().synchronize();
  ASSERT_TRUE(range.map_to(64 * kMiB + 1));
  EXPECT_EQ(range.mapped_bytes(), 128 * kMiB);
  EXPECT_EQ(range.data(), address);
  EXPECT_EQ(tandem::testing::download(ctx, reinterpret_cast<int*>(edge), 5), pattern);
  copy_to_device(ctx, address + 64 * kMiB, pattern.data(), 20);
  ctx.compute().synchronize();
  EXPECT_EQ(tandem::testing::download(ctx, reinterpret_cast<int*>(address + 64 * kMiB), 5),
            pattern);
}

TEST_F(CudaVirtualRange, SaysWhenTheReservationOrTheMemoryEnds) {
  Context<Cuda> ctx(CudaOptions{});
  VirtualRange<Cuda> small(4 * kMiB, 2 * kMiB);
  EXPECT_TRUE(small.map_to(4 * kMiB));
  EXPECT_FALSE(small.map_to(4 * kMiB + 1));
  EXPECT_EQ(small.mapped_bytes(), 4 * kMiB);
  const auto total = static_cast<std::size_t>(query_devices().devices[0].total_bytes);
  VirtualRange<Cuda> large(2 * total, 4096 * kMiB);
  EXPECT_FALSE(large.map_to(2 * total));
  const std::size_t mapped = large.mapped_bytes();
  EXPECT_GT(mapped, 0u);
  EXPECT_LT(mapped, total);
  fill_zero(ctx, large.data() + mapped - 4096, 4096);
  EXPECT_NO_THROW(ctx.compute().synchronize());
}

TEST_F(CudaVirtualRange, GrowsWhileAGraphReplaysOnIt) {
  Context<Cuda> ctx(CudaOptions{});
  VirtualRange<Cuda> range(4096 * kMiB, 64 * kMiB);
  ASSERT_TRUE(range.map_to(1));
  auto* const values = reinterpret_cast<int*>(range.data());
  constexpr int kCount = 1 << 20, kReplays = 400;
  const std::vector<int> source(kCount, 42);
  const auto from = tandem::testing::upload(ctx, source);
  auto graph = Graph<Cuda>::capture(ctx, [&] {
    fill_zero(ctx, values, kCount * 4);
    copy_on_device(ctx, values, from.data(), kCount * 4);
  });
  std::atomic<bool> grown{true};
  std::thread helper([&] {
    for (std::size_t segments = 2; segments <= 64; ++segments)
      if (!range.map_to(segments * 64 * kMiB)) grown = false;
  });
  for (int replay = 0; replay < kReplays; ++replay) graph.launch(ctx.compute());
  helper.join();
  EXPECT_TRUE(grown);
  EXPECT_EQ(range.mapped_bytes(), range.reserved_bytes());
  EXPECT_EQ(tandem::testing::download(ctx, values, kCount), source);
}

}  // namespace
}  // namespace tandem::kvcache
