// SPDX-License-Identifier: Apache-2.0
// Owns this rank's workspace for the peer kernels, its counters, and the mappings of the other
// ranks' workspaces; hands out the `PeerView` that kernels take. Made collectively at start-up;
// addresses never change, so captured graphs stay valid. All ranks sync their GPU and meet at a
// barrier before any of them destroys it: a slower peer may still be reading. `raise_error` may be
// called by any thread, the rest by the step thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/control_plane.h"
#include "comm/device_reader.h"
#include "comm/nccl_comm.h"
#include "comm/verdict.h"
#include "kernels/cuda/peer_view.h"
#include "kernels/device/cuda/context.h"
#include "kernels/device/host_buffer.h"

namespace tandem::comm {

/// Memory that all ranks of a group can load from and store to.
struct SharedMapping {
  std::vector<std::byte*> peers;              ///< [size] workspaces as seen from this process.
  std::vector<std::shared_ptr<void>> owners;  ///< Released last to first.
};

/// CUDA IPC between the processes of one host, also of two processes on one GPU. Collective; null
/// on all ranks when one of them cannot (`why` says so).
std::optional<SharedMapping> map_over_ipc(ControlPlane& control, std::int64_t size_bytes,
                                          std::string& why);

/// The same for memory that this rank owns already: `own` is the base of an allocation. It is
/// released after all others have closed their mappings.
std::optional<SharedMapping> share_over_ipc(ControlPlane& control, void* own, std::string& why);

/// An NCCL window of all ranks of `comm`, which NCCL maps into every process. Registered without
/// the symmetric flag, so that NCCL's own collectives never use its symmetric kernels, which lack
/// a dependency wait in 2.28. Collective; null on all ranks when one of them cannot.
std::optional<SharedMapping> map_over_window(ControlPlane& control, const NcclComm& comm,
                                             std::int64_t size_bytes, std::string& why);

class PeerMemory {
 public:
  /// `mapping` comes zeroed, of `kernels::PeerLayout::size_bytes()`.
  PeerMemory(int rank, SharedMapping mapping);
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  ~PeerMemory();

  const kernels::PeerView& view() const { return view_; }

  /// Makes every spinning kernel of this rank return at once, now and later. Over the copy engine,
  /// so it works while kernels hold all SMs; returns when the word is set.
  void raise_error() noexcept;
  /// The error word; waits for the copy only.
  bool failed();
  /// How far this rank's kernels have come: from their counters, and from what they wrote to the
  /// next rank. Waits for copies of a few words, which kernels that hold all SMs do not keep. One
  /// thread at a time.
  DevicePosition position() const;

 private:
  SharedMapping mapping_;
  Buffer<std::uint32_t, Cuda> counters_;
  HostBuffer<std::uint32_t, Cuda> one_;
  int device_ = 0;
  cudaStream_t error_stream_ = nullptr;
  std::unique_ptr<DeviceReader> reader_;
  kernels::PeerView view_;
};

/// n workspaces of this process on the current GPU, as n ranks would see them: for tests.
std::vector<std::unique_ptr<PeerMemory>> local_peers(int size);

}  // namespace tandem::comm
