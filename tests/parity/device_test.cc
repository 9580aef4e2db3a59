// SPDX-License-Identifier: Apache-2.0
// Streams, events, graphs, the pool and memory sync domains of a GPU.
#include "kernels/device/device.h"

#include <numeric>
#include <stdexcept>

#include "comm/peer_memory.h"
#include "kernels/cuda/all_reduce.h"
#include "kernels/device/cuda/event.h"
#include "kernels/device/cuda/graph.h"
#include "kernels/device/host_buffer.h"
#include "parity/gpu.h"

namespace tandem {
namespace {

class DeviceTest : public testing::GpuTest {};

TEST_F(DeviceTest, ReportNamesTheGpu) {
  const DeviceReport report = query_devices(true);
  EXPECT_TRUE(report.built_with_cuda);
  const DeviceInfo& info = report.devices[0];
  EXPECT_FALSE(info.name.empty());
  EXPECT_EQ(info.uuid.size(), 40u);
  EXPECT_EQ(info.compute_major, 9);
  EXPECT_EQ(info.mem_sync_domains, 4);
  EXPECT_GT(info.free_bytes, 0);
  EXPECT_LE(info.free_bytes, info.total_bytes);
  EXPECT_TRUE(info.peer_access[0]);
}

TEST_F(DeviceTest, MissingGpuIsOneSentence) {
  CudaOptions options;
  options.device = 1000;
  EXPECT_THROW(Context<Cuda> ctx(options), ConfigError);
}

TEST_F(DeviceTest, CopiesThereAndBackOnBothStreams) {
  Context<Cuda> ctx(CudaOptions{});
  HostBuffer<int, Cuda> host(1000), back(1000);
  std::iota(host.begin(), host.end(), 7);
  const Buffer<int, Cuda> device(1000);
  copy_to_device(ctx, device.data(), host.data(), device.size_bytes());
  Event<Cuda> written;
  written.record(ctx.compute());
  written.block(ctx.copy());
  copy_to_host(ctx.copy(), back.data(), device.data(), device.size_bytes());
  ctx.copy().synchronize();
  EXPECT_TRUE(written.done());
  EXPECT_TRUE(std::equal(host.begin(), host.end(), back.begin()));
  fill_zero(ctx, device.data(), 400);
  const auto zeroed = testing::download(ctx, device.data(), 1000);
  EXPECT_EQ(zeroed[99], 0);
  EXPECT_EQ(zeroed[100], 107);
}

TEST_F(DeviceTest, DomainsAreSeparateUnlessShared) {
  Context<Cuda> separate(CudaOptions{});
  EXPECT_EQ(separate.compute().domain().physical(), 0);
  EXPECT_EQ(separate.comm().domain().physical(), 1);
  EXPECT_EQ(separate.comm_domain(), 1);
  CudaOptions options;
  options.domains = MemSyncDomains::kShared;
  Context<Cuda> shared(options);
  EXPECT_EQ(shared.comm().domain().physical(), 0);
  shared.comm().set_domain({true, 2, 3});
  EXPECT_EQ(shared.comm().domain().physical(), 3);
}

/// A captured graph whose kernels run on compute and on comm.
Graph<Cuda> two_stream_graph(Context<Cuda>& ctx, const Buffer<float, Cuda>& a,
                             const Buffer<float, Cuda>& b,
                             const std::vector<std::unique_ptr<comm::PeerMemory>>& peers) {
  Event<Cuda> fork, join;
  return Graph<Cuda>::capture(ctx, [&] {
    fork.record(ctx.compute());
    fork.block(ctx.comm());
    kernels::peer_all_reduce(ctx, ctx.compute(), peers[0]->view(), kernels::PeerAlgorithm::kPush,
                             a.span());
    kernels::peer_all_reduce(ctx, ctx.comm(), peers[1]->view(), kernels::PeerAlgorithm::kPush,
                             b.span());
    join.record(ctx.comm());
    join.block(ctx.compute());
  });
}

TEST_F(DeviceTest, GraphNodesKeepTheDomainOfTheirStream) {
  for (const MemSyncDomains domains : {MemSyncDomains::kSeparate, MemSyncDomains::kShared}) {
    CudaOptions options;
    options.domains = domains;
    Context<Cuda> ctx(options);
    const auto peers = comm::local_peers(2);
    const auto a = testing::upload(ctx, std::vector<float>{1, 2, 3, 4}),
               b = testing::upload(ctx, std::vector<float>{10, 20, 30, 40});
    auto graph = two_stream_graph(ctx, a, b, peers);
    const auto nodes = graph.kernel_domains();
    ASSERT_EQ(nodes.size(), 2u);
    const int comm_domain = domains == MemSyncDomains::kSeparate ? 1 : 0;
    int remote = 0;
    for (const KernelDomain& node : nodes) {
      EXPECT_NE(node.kernel.find("all_reduce"), std::string::npos) << node.kernel;
      EXPECT_EQ(node.physical, node.remote ? comm_domain : 0);
      remote += node.remote;
    }
    EXPECT_EQ(remote, 1);
    EXPECT_NO_THROW(graph.require_domains(0, comm_domain));
    EXPECT_THROW(graph.require_domains(0, 2), InternalError);
    for (int replay = 0; replay < 3; ++replay) graph.launch(ctx.compute());
    ctx.compute().synchronize();
    EXPECT_EQ(testing::download(ctx, a.data(), 4), (std::vector<float>{44, 88, 132, 176}));
    EXPECT_EQ(testing::download(ctx, b.data(), 4), (std::vector<float>{44, 88, 132, 176}));
  }
}

TEST_F(DeviceTest, AThrowInACaptureLeavesTheStreamUsable) {
  Context<Cuda> ctx(CudaOptions{});
  EXPECT_THROW(Graph<Cuda>::capture(ctx, [] { throw std::runtime_error("on purpose"); }),
               std::runtime_error);
  EXPECT_THROW(Graph<Cuda>::capture(ctx, [&] { ctx.temporary(16); }), InternalError);
  const auto data = testing::upload(ctx, std::vector<int>{1, 2, 3});
  auto graph = Graph<Cuda>::capture(ctx, [&] { fill_zero(ctx, data.data(), 8); });
  ASSERT_TRUE(static_cast<bool>(graph));
  graph.launch(ctx.compute());
  EXPECT_EQ(testing::download(ctx, data.data(), 3), (std::vector<int>{0, 0, 3}));
}

TEST_F(DeviceTest, TemporariesAreReusedInStreamOrder) {
  Context<Cuda> ctx(CudaOptions{});
  const std::int64_t before = allocation_count();
  void* first = nullptr;
  {
    const Temporary temporary = ctx.temporary(1 << 20);
    first = temporary.as<void>();
    fill_zero(ctx, first, 1 << 20);
  }
  const Temporary again = ctx.temporary(1 << 20);
  EXPECT_EQ(again.as<void>(), first);
  EXPECT_EQ(allocation_count(), before + 2);
}

TEST_F(DeviceTest, OutOfMemorySaysWhatToLower) {
  Context<Cuda> ctx(CudaOptions{});
  try {
    Buffer<std::byte, Cuda> huge(std::int64_t{1} << 44);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("--gpu-memory-utilization"), std::string::npos);
  }
  ctx.compute().synchronize();
}

}  // namespace
}  // namespace tandem
