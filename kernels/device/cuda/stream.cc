// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/cuda/stream.h"

#include <utility>

#include "kernels/device/cuda/check.h"
#include "kernels/device/error.h"

namespace tandem {
namespace {

SyncDomain read_domain(cudaStream_t stream) {
  cudaStreamAttrValue logical{}, map{};
  TANDEM_CHECK(cudaStreamGetAttribute(stream, cudaLaunchAttributeMemSyncDomain, &logical));
  TANDEM_CHECK(cudaStreamGetAttribute(stream, cudaLaunchAttributeMemSyncDomainMap, &map));
  return {logical.memSyncDomain == cudaLaunchMemSyncDomainRemote, map.memSyncDomainMap.default_,
          map.memSyncDomainMap.remote};
}

}  // namespace

Stream<Cuda>::Stream(Priority priority, SyncDomain domain) {
  int lowest = 0, highest = 0;
  TANDEM_CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  TANDEM_CHECK(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                            priority == Priority::kHighest ? highest : lowest));
  try {
    set_domain(domain);
  } catch (...) {
    TANDEM_CHECK_NOEXCEPT(cudaStreamDestroy(stream_));
    throw;
  }
}

Stream<Cuda>::Stream(Stream&& other) noexcept
    : stream_(std::exchange(other.stream_, nullptr)), domain_(other.domain_) {}

Stream<Cuda>::~Stream() {
  if (stream_ != nullptr) TANDEM_CHECK_NOEXCEPT(cudaStreamDestroy(stream_));
}

void Stream<Cuda>::set_domain(const SyncDomain& domain) {
  cudaStreamAttrValue logical{}, map{};
  logical.memSyncDomain =
      domain.remote ? cudaLaunchMemSyncDomainRemote : cudaLaunchMemSyncDomainDefault;
  map.memSyncDomainMap.default_ = domain.physical_default;
  map.memSyncDomainMap.remote = domain.physical_remote;
  TANDEM_CHECK(cudaStreamSetAttribute(stream_, cudaLaunchAttributeMemSyncDomainMap, &map));
  TANDEM_CHECK(cudaStreamSetAttribute(stream_, cudaLaunchAttributeMemSyncDomain, &logical));
  domain_ = read_domain(stream_);
  TANDEM_ASSERT(domain_ == domain, "the driver kept memory sync domain ", domain_.physical(),
                " where ", domain.physical(), " was set");
}

bool Stream<Cuda>::capturing() const {
  cudaStreamCaptureStatus status{};
  TANDEM_CHECK(cudaStreamIsCapturing(stream_, &status));
  return status != cudaStreamCaptureStatusNone;
}

void Stream<Cuda>::synchronize() { TANDEM_CHECK(cudaStreamSynchronize(stream_)); }

bool Stream<Cuda>::idle() const {
  const cudaError_t code = cudaStreamQuery(stream_);
  if (code == cudaErrorNotReady) return false;
  TANDEM_CHECK(code);
  return true;
}

int mem_sync_domain_count(int device) {
  int count = 0;
  TANDEM_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMemSyncDomainCount, device));
  return count;
}

}  // namespace tandem
