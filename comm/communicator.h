// SPDX-License-Identifier: Apache-2.0
// The data plane: sums and gathers of device memory over the tensor-parallel group. Enqueued on
// the stream named; on the CPU synchronous. Sums are taken in rank order 0..n-1 in float with one
// rounding to T, so all ranks hold equal bits, run to run and at any message size (NCCL paths
// promise only equal bits on all ranks).
#pragma once

#include <memory>
#include <optional>

#include "comm/control_plane.h"
#include "comm/shared_board.h"
#include "comm/verdict.h"
#include "kernels/add_norm.h"
#include "kernels/device/buffer.h"
#include "kernels/device/recorder.h"

namespace tandem::comm {

template <Device D>
class Communicator;

template <>
class Communicator<Cpu> {
 public:
  /// Waits for other ranks are published where those of `control` are. Collective. Ranks of one
  /// host talk through memory that they share, unless `share_memory` is false.
  explicit Communicator(ControlPlane& control, bool share_memory = true);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// data[i] = sum over ranks, in place. T is float, BFloat16 or Float16.
  template <typename T>
  void all_reduce_sum(Context<Cpu>& ctx, Span<T, Cpu> data);

  /// The same, on a device beside what the compute stream does; here in its place.
  template <typename T>
  void all_reduce_sum_beside(Context<Cpu>& ctx, Span<T, Cpu> data) {
    all_reduce_sum(ctx, data);
  }
  /// Whether sums on the comm stream are in a memory sync domain of their own; A/B measurements.
  void separate_domains(Context<Cpu>&, bool) {}
  /// Whether matmuls leave room for a sum that runs beside them.
  void share_device(Context<Cpu>&, bool) {}

  /// out = rank 0's `mine`, then rank 1's, ...; all of equal size.
  void all_gather(Context<Cpu>& ctx, const void* mine, void* out, std::int64_t size_bytes);

  /// Rank r gives `counts[r]` bytes; out holds them one after the other.
  void all_gather_v(Context<Cpu>& ctx, const void* mine, void* out,
                    const std::vector<std::int64_t>& counts_bytes);

  /// Sums `partial` over ranks, then `add_norm` with args.branch = partial: one seam, so that a
  /// device may fuse both into one kernel.
  template <typename T>
  void reduce_add_norm(Context<Cpu>& ctx, TensorView<T, Cpu> partial,
                       const kernels::AddNormArgs<T, Cpu>& args);

  /// The same with the product in front of it; false: this device has no such kernel.
  template <typename T>
  bool project_reduce_add_norm(Context<Cpu>&, TensorView<const T, Cpu>,
                               const kernels::LinearWeight<T, Cpu>&, TensorView<T, Cpu>,
                               const kernels::AddNormArgs<T, Cpu>&, Activity) {
    return false;
  }

  /// For devices whose work goes on beside the host's. MPI reports errors where they happen.
  void raise_error() noexcept {}
  std::string async_error() const { return {}; }
  std::optional<DevicePosition> position() const { return std::nullopt; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  Progress* progress_ = nullptr;
  std::unique_ptr<SharedBoard> board_;  ///< Null: messages.
  std::vector<std::byte> staging_;
};

}  // namespace tandem::comm
