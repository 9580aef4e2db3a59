// SPDX-License-Identifier: Apache-2.0
// All-reduce kernels with n ranks that are n buffers of this process: bit for bit against a host
// sum in rank order. The n kernels run at the same time on n streams, so their grids together must
// fit the GPU: each is kept to 128 / n blocks.
#include "kernels/cuda/all_reduce.h"

#include <chrono>
#include <cmath>
#include <cstdlib>

#include "comm/peer_memory.h"
#include "kernels/device/cuda/event.h"
#include "kernels/device/cuda/graph.h"
#include "parity/gpu.h"

namespace tandem::kernels {
namespace {

using tandem::testing::download;
using tandem::testing::upload;

/// The streams must not share hardware queues, or a spinning kernel could sit before its peer.
const int kQueuesSet = ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);

/// Values whose sum depends on order and rounding.
float rough(int rank, std::int64_t i, int call) {
  return std::sin(static_cast<float>(i * 13 + rank * 7919 + call * 104729 % 1000)) *
         std::exp2(static_cast<float>(rank % 4 * 2));
}

template <typename T>
bool same_bits(T a, T b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// n ranks on one GPU.
struct Group {
  explicit Group(int ranks) : size(ranks), memory(comm::local_peers(ranks)) {
    for (int r = 0; r < ranks; ++r) {
      streams.emplace_back(Stream<Cuda>::Priority::kNormal, SyncDomain{});
      views.push_back(memory[static_cast<std::size_t>(r)]->view());
      views.back().max_blocks = kPeerBlocks / 2 / ranks * 2;
    }
  }
  void synchronize() {
    for (auto& stream : streams) stream.synchronize();
  }
  int size;
  std::vector<std::unique_ptr<comm::PeerMemory>> memory;
  std::vector<Stream<Cuda>> streams;
  std::vector<PeerView> views;
};

template <typename T>
struct Data {
  std::vector<std::vector<T>> inputs;
  std::vector<Buffer<T, Cuda>> buffers;
  Data(Context<Cuda>& ctx, int ranks, std::int64_t size, int call) {
    for (int r = 0; r < ranks; ++r) {
      std::vector<T> values;
      for (std::int64_t i = 0; i < size; ++i) values.push_back(T(rough(r, i, call)));
      buffers.push_back(upload(ctx, values));
      inputs.push_back(std::move(values));
    }
  }
  T sum(std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    float sum = static_cast<float>(inputs[0][at]);
    for (std::size_t r = 1; r < inputs.size(); ++r) sum += static_cast<float>(inputs[r][at]);
    return T(sum);
  }
};

template <typename T>
void expect_sums(Context<Cuda>& ctx, const Data<T>& data, const char* what) {
  for (std::size_t r = 0; r < data.buffers.size(); ++r) {
    const auto got = download(ctx, data.buffers[r].data(), data.buffers[r].size());
    std::int64_t wrong = 0, first = -1;
    for (std::int64_t i = 0; i < data.buffers[r].size(); ++i)
      if (!same_bits(got[static_cast<std::size_t>(i)], data.sum(i))) {
        if (wrong++ == 0) first = i;
      }
    EXPECT_EQ(wrong, 0) << what << ": rank " << r << ", first wrong element " << first << " of "
                        << got.size();
  }
}

template <typename T>
class AllReduce : public tandem::testing::GpuTest {};
using Types = ::testing::Types<float, BFloat16, Float16>;
TYPED_TEST_SUITE(AllReduce, Types);

TYPED_TEST(AllReduce, BitwiseInRankOrderWhateverAlgorithmAndSize) {
  using T = TypeParam;
  Context<Cuda> ctx(CudaOptions{});
  const PeerAlgorithm algorithms[] = {PeerAlgorithm::kPush, PeerAlgorithm::kPull,
                                      PeerAlgorithm::kTwoShot};
  for (const int ranks : {2, 3, 4, 5, 8}) {
    Group group(ranks);
    int call = 0;
    // Each algorithm several times and in turns: both halves of its buffers are used again.
    for (const std::int64_t size : {1, 3, 8, 511, 4096, 8195, 4096, 30001, 64, 100003, 1})
      for (const PeerAlgorithm algorithm : algorithms) {
        const std::int64_t packs = (size * static_cast<std::int64_t>(sizeof(T)) + 15) / 16;
        if (!fits(algorithm, flat_grid(packs, group.views[0].max_blocks))) continue;
        Data<T> data(ctx, ranks, size, ++call);
        for (int r = 0; r < ranks; ++r) {
          const auto i = static_cast<std::size_t>(r);
          peer_all_reduce(ctx, group.streams[i], group.views[i], algorithm, data.buffers[i].span());
        }
        group.synchronize();
        const std::string what = concat(ranks, " ranks, algorithm ", static_cast<int>(algorithm),
                                        ", size ", size, ", call ", call);
        expect_sums(ctx, data, what.c_str());
        ASSERT_FALSE(this->HasFailure()) << what;
      }
  }
}

class PeerGather : public tandem::testing::GpuTest {};

TEST_F(PeerGather, UnevenPartsOfAnyAlignment) {
  Context<Cuda> ctx(CudaOptions{});
  for (const int ranks : {1, 2, 3, 8}) {
    Group group(ranks);
    for (const std::int64_t base : {1, 16, 1000, 20000}) {
      std::vector<std::int64_t> counts;
      std::vector<std::uint8_t> expected;
      std::vector<Buffer<std::uint8_t, Cuda>> mine, out;
      for (int r = 0; r < ranks; ++r) {
        counts.push_back(r == 1 ? 0 : base + 5 * r);
        std::vector<std::uint8_t> bytes;
        for (std::int64_t i = 0; i < counts.back(); ++i)
          bytes.push_back(static_cast<std::uint8_t>(r * 40 + i * 7));
        expected.insert(expected.end(), bytes.begin(), bytes.end());
        mine.push_back(upload(ctx, bytes));
      }
      const auto total = static_cast<std::int64_t>(expected.size());
      for (int r = 0; r < ranks; ++r)
        out.push_back(tandem::testing::poisoned<std::uint8_t>(ctx, total + 8));
      for (int r = 0; r < ranks; ++r) {
        const auto i = static_cast<std::size_t>(r);
        peer_all_gather(ctx, group.streams[i], group.views[i], mine[i].data(), out[i].data(),
                        counts);
      }
      group.synchronize();
      for (int r = 0; r < ranks; ++r) {
        auto got = download(ctx, out[static_cast<std::size_t>(r)].data(), total + 8);
        for (int tail = 0; tail < 8; ++tail)
          EXPECT_EQ(got[static_cast<std::size_t>(total + tail)], 0xff) << "written past the end";
        got.resize(expected.size());
        EXPECT_EQ(got, expected) << ranks << " ranks, rank " << r << ", base " << base;
      }
    }
  }
}

class PeerGraph : public tandem::testing::GpuTest {};

TEST_F(PeerGraph, ReplaysAdvanceTheirOwnCounters) {
  constexpr int kRanks = 3;
  constexpr std::int64_t kSize = 5000;
  Context<Cuda> ctx(CudaOptions{});
  Group group(kRanks);
  Data<float> data(ctx, kRanks, kSize, 0);
  std::vector<Buffer<float, Cuda>> work;
  for (int r = 0; r < kRanks; ++r) work.emplace_back(kSize);
  Event<Cuda> fork;
  std::vector<Event<Cuda>> joins(kRanks);
  auto graph = Graph<Cuda>::capture(ctx, [&] {
    for (int r = 0; r < kRanks; ++r) {
      const auto i = static_cast<std::size_t>(r);
      copy_on_device(ctx, work[i].data(), data.buffers[i].data(), kSize * 4);
    }
    fork.record(ctx.compute());
    for (int r = 0; r < kRanks; ++r) {
      const auto i = static_cast<std::size_t>(r);
      fork.block(group.streams[i]);
      for (const auto algorithm :
           {PeerAlgorithm::kPush, PeerAlgorithm::kTwoShot, PeerAlgorithm::kPull})
        peer_all_reduce(ctx, group.streams[i], group.views[i], algorithm, work[i].span());
      joins[i].record(group.streams[i]);
      joins[i].block(ctx.compute());
    }
  });
  for (int replay = 0; replay < 50; ++replay) {
    graph.launch(ctx.compute());
    ctx.compute().synchronize();
    for (int r = 0; r < kRanks; ++r) {
      const auto got = download(ctx, work[static_cast<std::size_t>(r)].data(), kSize);
      for (std::int64_t i = 0; i < kSize; ++i) {
        const float first = data.sum(i);
        const float second = first + first + first;
        ASSERT_EQ(got[static_cast<std::size_t>(i)], second + second + second) << replay << " " << i;
      }
    }
  }
}

class PeerFailure : public tandem::testing::GpuTest {};

TEST_F(PeerFailure, ErrorWordEndsASpin) {
  Context<Cuda> ctx(CudaOptions{});
  Group group(2);
  for (const auto algorithm :
       {PeerAlgorithm::kPush, PeerAlgorithm::kPull, PeerAlgorithm::kTwoShot}) {
    Data<float> data(ctx, 1, 1000, 0);
    // Rank 1 never comes.
    peer_all_reduce(ctx, group.streams[0], group.views[0], algorithm, data.buffers[0].span());
    group.memory[0]->raise_error();
    group.streams[0].synchronize();
    EXPECT_TRUE(group.memory[0]->failed());
  }
}

TEST_F(PeerFailure, ASpinPastItsLimitSetsTheErrorWord) {
  Context<Cuda> ctx(CudaOptions{});
  Group group(2);
  Data<float> data(ctx, 1, 1000, 0);
  group.views[0].spin_limit_ns = 20'000'000;
  peer_all_reduce(ctx, group.streams[0], group.views[0], PeerAlgorithm::kPull,
                  data.buffers[0].span());
  group.streams[0].synchronize();
  EXPECT_TRUE(group.memory[0]->failed());
  EXPECT_FALSE(group.memory[1]->failed());
}

TEST_F(PeerFailure, PositionsTellWhoDidNotCome) {
  Context<Cuda> ctx(CudaOptions{});
  Group group(2);
  const auto at = [&](std::size_t rank, std::uint32_t entered, std::uint32_t left) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (std::chrono::steady_clock::now() < end) {
      const comm::DevicePosition position = group.memory[rank]->position();
      if (position.entered == entered && position.left == left) return true;
    }
    return false;
  };
  EXPECT_TRUE(at(0, 0, 0));
  std::uint32_t calls = 0;
  for (int turn = 0; turn < 3; ++turn)
    for (const auto algorithm :
         {PeerAlgorithm::kPush, PeerAlgorithm::kPull, PeerAlgorithm::kTwoShot}) {
      Data<float> data(ctx, 2, 1000, 0);
      const auto late = static_cast<std::size_t>(turn % 2), early = 1 - late;
      const auto launch = [&](std::size_t rank) {
        peer_all_reduce(ctx, group.streams[rank], group.views[rank], algorithm,
                        data.buffers[rank].span());
      };
      launch(early);
      EXPECT_TRUE(at(early, calls + 1, calls)) << "call " << calls;
      EXPECT_TRUE(at(late, calls, calls)) << "call " << calls;
      launch(late);
      group.synchronize();
      ++calls;
      EXPECT_TRUE(at(early, calls, calls)) << "call " << calls;
      EXPECT_TRUE(at(late, calls, calls)) << "call " << calls;
    }
}

}  // namespace
}  // namespace tandem::kernels
