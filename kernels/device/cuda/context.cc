// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/cuda/context.h"

#include <utility>

#include "kernels/cuda/linear_cublaslt.h"
#include "kernels/device/allocation_counter.h"
#include "kernels/device/cuda/check.h"
#include "kernels/device/device_info.h"
#include "kernels/device/error.h"

namespace tandem {
namespace {

constexpr std::int64_t kPartials = std::int64_t{8} << 20;
constexpr std::int64_t kCounters = std::int64_t{64} << 10;

/// Selects the GPU before the first member that needs it is made.
const CudaOptions& select_device(const CudaOptions& options) {
  const DeviceReport report = query_devices();
  TANDEM_REQUIRE(report.problem.empty(), report.problem);
  const int count = static_cast<int>(report.devices.size());
  TANDEM_REQUIRE(options.device >= 0 && options.device < count, "GPU ", options.device,
                 " is not visible to this process (", count,
                 " are): start fewer ranks per host, or use --device cpu");
  const DeviceInfo& info = report.devices[static_cast<std::size_t>(options.device)];
  TANDEM_REQUIRE(info.unusable_because.empty(), info.unusable_because);
  TANDEM_CHECK(cudaSetDevice(options.device));
  return options;
}

bool separate(const CudaOptions& options) {
  const bool possible = mem_sync_domain_count(options.device) > 1;
  TANDEM_REQUIRE(possible || options.domains != MemSyncDomains::kSeparate,
                 "this GPU has one memory synchronization domain, nothing can be separated: use "
                 "--mem-sync-domains=auto");
  return possible && options.domains != MemSyncDomains::kShared;
}

/// Compute is in domain 0 by its logical default; whatever is logical remote goes to domain 1.
SyncDomain sync_domain(const CudaOptions& options, bool remote) {
  return {remote, 0, static_cast<unsigned char>(separate(options) ? 1 : 0)};
}

cudaMemPool_t make_pool(int device, std::size_t threshold_bytes) {
  cudaMemPoolProps props{};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  props.location.id = device;
  cudaMemPool_t pool = nullptr;
  TANDEM_CHECK(cudaMemPoolCreate(&pool, &props));
  std::uint64_t threshold = threshold_bytes;
  TANDEM_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  return pool;
}

void copy(void* to, const void* from, std::int64_t size_bytes, cudaMemcpyKind kind,
          const Stream<Cuda>& stream) {
  if (size_bytes == 0) return;
  TANDEM_CHECK(
      cudaMemcpyAsync(to, from, static_cast<std::size_t>(size_bytes), kind, stream.handle()));
}

}  // namespace

Temporary::Temporary(Temporary&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), stream_(other.stream_) {}

Temporary::~Temporary() {
  if (data_ != nullptr) TANDEM_CHECK_NOEXCEPT(cudaFreeAsync(data_, stream_));
}

Context<Cuda>::Context(const CudaOptions& options)
    : options_(select_device(options)),
      compute_(Stream<Cuda>::Priority::kNormal, sync_domain(options_, false)),
      comm_(Stream<Cuda>::Priority::kHighest, sync_domain(options_, true)),
      copy_(Stream<Cuda>::Priority::kNormal, sync_domain(options_, true)),
      pool_(make_pool(options_.device, options_.pool_threshold_bytes)),
      cublaslt_(std::make_unique<kernels::CublasLt>(options_)),
      partials_(kPartials),
      counters_(kCounters) {
  fill_zero(*this, counters_.data(), counters_.size_bytes());
  num_domains_ = mem_sync_domain_count(options_.device);
  TANDEM_CHECK(cudaDeviceGetAttribute(&num_sms_, cudaDevAttrMultiProcessorCount, options_.device));
  square_sums_ = Buffer<float, Cuda>(std::int64_t{kSquareSumRows} * num_sms_);
}

Context<Cuda>::~Context() {
  TANDEM_CHECK_NOEXCEPT(cudaStreamSynchronize(compute_.handle()));
  cublaslt_.reset();
  TANDEM_CHECK_NOEXCEPT(cudaMemPoolDestroy(pool_));
}

Temporary Context<Cuda>::temporary(std::size_t size_bytes) {
  TANDEM_ASSERT(!compute_.capturing(), "a graph would hold an allocation node");
  count_allocation();
  void* data = nullptr;
  if (size_bytes > 0)
    TANDEM_CHECK(cudaMallocFromPoolAsync(&data, size_bytes, pool_, compute_.handle()));
  return Temporary(data, compute_.handle());
}

void Context<Cuda>::make_current() const { TANDEM_CHECK(cudaSetDevice(options_.device)); }

void copy_to_device(Context<Cuda>& ctx, void* device, const void* host, std::int64_t size_bytes) {
  copy(device, host, size_bytes, cudaMemcpyHostToDevice, ctx.compute());
}
void copy_to_host(Context<Cuda>& ctx, void* host, const void* device, std::int64_t size_bytes) {
  copy(host, device, size_bytes, cudaMemcpyDeviceToHost, ctx.compute());
}
void copy_to_device(Stream<Cuda>& stream, void* device, const void* host, std::int64_t size_bytes) {
  copy(device, host, size_bytes, cudaMemcpyHostToDevice, stream);
}
void copy_to_host(Stream<Cuda>& stream, void* host, const void* device, std::int64_t size_bytes) {
  copy(host, device, size_bytes, cudaMemcpyDeviceToHost, stream);
}
void copy_on_device(Context<Cuda>& ctx, void* to, const void* from, std::int64_t size_bytes) {
  copy(to, from, size_bytes, cudaMemcpyDeviceToDevice, ctx.compute());
}
void fill_zero(Context<Cuda>& ctx, void* device, std::int64_t size_bytes) {
  if (size_bytes == 0) return;
  TANDEM_CHECK(
      cudaMemsetAsync(device, 0, static_cast<std::size_t>(size_bytes), ctx.compute().handle()));
}

}  // namespace tandem
