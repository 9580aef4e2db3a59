// SPDX-License-Identifier: Apache-2.0
// Owns one non-blocking CUDA stream with a priority and a memory synchronization domain. The
// domain's map is set explicitly and read back: a captured kernel node keeps what its stream had
// at capture, so it must be right before any capture. Move-only; used from one thread at a time.
#pragma once

#include <cuda_runtime.h>

#include "kernels/device/device.h"

namespace tandem {

/// Logical domain of a stream's kernels, and the physical domain that each logical one means.
/// NCCL's kernels are always logical remote, whatever the stream says.
struct SyncDomain {
  bool remote = false;
  unsigned char physical_default = 0;
  unsigned char physical_remote = 0;
  bool operator==(const SyncDomain&) const = default;
  int physical() const { return remote ? physical_remote : physical_default; }
};

template <>
class Stream<Cuda> {
 public:
  enum class Priority { kNormal, kHighest };

  /// Of the current device. The physical numbers must be below `mem_sync_domain_count`.
  Stream(Priority priority, SyncDomain domain);
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&&) = delete;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  cudaStream_t handle() const { return stream_; }
  /// As read back from the driver after construction.
  const SyncDomain& domain() const { return domain_; }
  /// Sets logical domain and map of later launches: the A/B switch of the benches. Not while a
  /// capture is active; graphs captured before keep what they had.
  void set_domain(const SyncDomain& domain);
  bool capturing() const;
  /// Blocks the calling thread until all enqueued work is done.
  void synchronize();
  /// All enqueued work is done.
  bool idle() const;

 private:
  cudaStream_t stream_ = nullptr;
  SyncDomain domain_;
};

/// Physical domains of the GPU: 4 on Hopper, 1 before (then nothing can be separated).
int mem_sync_domain_count(int device);

}  // namespace tandem
