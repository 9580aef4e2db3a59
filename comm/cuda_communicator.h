// SPDX-License-Identifier: Apache-2.0
// The data plane of CUDA ranks: own kernels over peer memory for small messages, NCCL for the rest.
// Two NCCL communicators: one for what is captured into decode graphs, one for eager steps, because
// no eager collective may run on a communicator while a graph that captured it is in flight.
// Own kernels run on the compute stream in its memory sync domain; NCCL's kernels are logical
// remote, so the stream's map puts them in the comm domain. Used by the step thread; `raise_error`
// and `async_error` by any. Teardown: graphs first, then this (collective: it meets the other
// ranks), then the context, all before MPI ends.
#pragma once

#include <map>
#include <memory>

#include "comm/all_reduce_choice.h"
#include "comm/communicator.h"
#include "comm/nccl_comm.h"
#include "comm/peer_memory.h"
#include "kernels/cuda/all_reduce.h"
#include "kernels/cuda/decode_choice.h"

namespace tandem::comm {

struct CudaCommunicatorOptions {
  AllReduceChoice all_reduce = AllReduceChoice::kAuto;
  bool allow_shared_gpu = false;       ///< Ranks may share a GPU: right, but slow.
  int prefill_max_ctas = 16;           ///< SMs an eager NCCL collective may take; 0: NCCL decides.
  std::chrono::seconds deadline{120};  ///< For NCCL to connect.
};

template <>
class Communicator<Cuda> {
 public:
  /// Collective, on the GPU of `ctx`. `control` outlives it.
  Communicator(Context<Cuda>& ctx, ControlPlane& control, const CudaCommunicatorOptions& options);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  int rank() const { return control_.rank(); }
  int size() const { return control_.size(); }

  /// data[i] = sum over ranks, in place, on the compute stream. T is float, BFloat16 or Float16.
  template <typename T>
  void all_reduce_sum(Context<Cuda>& ctx, Span<T, Cuda> data);

  /// The same by NCCL on `stream`, eager, for overlap with the compute stream.
  template <typename T>
  void all_reduce_sum_on(Stream<Cuda>& stream, Span<T, Cuda> data);

  /// The same on the comm stream.
  template <typename T>
  void all_reduce_sum_beside(Context<Cuda>& ctx, Span<T, Cuda> data) {
    all_reduce_sum_on(ctx.comm(), data);
  }
  /// Whether later sums on the comm stream are in a memory sync domain of their own.
  void separate_domains(Context<Cuda>& ctx, bool on);
  /// Whether later matmuls plan for the SMs that an eager NCCL collective leaves.
  void share_device(Context<Cuda>& ctx, bool on);

  /// out = rank 0's `mine`, then rank 1's, ...; all of equal size. On the compute stream.
  void all_gather(Context<Cuda>& ctx, const void* mine, void* out, std::int64_t size_bytes);

  /// Rank r gives `counts[r]` bytes; out holds them one after the other. On the compute stream.
  void all_gather_v(Context<Cuda>& ctx, const void* mine, void* out,
                    const std::vector<std::int64_t>& counts_bytes);

  /// Sums `partial` over ranks, then `add_norm` with args.branch = partial; one kernel while the
  /// message is small. On the compute stream.
  template <typename T>
  void reduce_add_norm(Context<Cuda>& ctx, TensorView<T, Cuda> partial,
                       const kernels::AddNormArgs<T, Cuda>& args);

  /// The product x W^T of `reduce_add_norm` too, as one kernel. False, with nothing enqueued, where
  /// there is none: for more than 32 rows, or when this or another rank cannot. The ranks agree
  /// when they first call it with a number of rows for an `activity`; shapes are alike in all
  /// layers.
  template <typename T>
  bool project_reduce_add_norm(Context<Cuda>& ctx, TensorView<const T, Cuda> x,
                               const kernels::LinearWeight<T, Cuda>& weight,
                               TensorView<T, Cuda> partial,
                               const kernels::AddNormArgs<T, Cuda>& args, Activity activity);

  /// Own kernels or NCCL from here on, for bare sums and for `reduce_add_norm`; measurements use
  /// it. Equal on all ranks.
  void set_table(const AllReduceTable& table) { table_ = seam_table_ = table; }
  /// Blocks that share a row in `reduce_add_norm` (`kernels::row_grid`), for measurements.
  void set_row_blocks(std::int32_t blocks) { row_blocks_ = blocks; }
  const AllReduceTable& table() const { return table_; }
  bool has_peer_memory() const { return peers_ != nullptr; }

  /// Ends all spins of own kernels of this rank. NCCL's end with the process: aborting them here
  /// would pull the communicator from under the step thread.
  void raise_error() noexcept;
  /// Empty, or what went wrong in a collective that was enqueued earlier.
  std::string async_error() const;
  /// How far this rank's kernels have come; nothing without peer memory, as NCCL does not tell.
  std::optional<DevicePosition> position() const;

 private:
  std::optional<kernels::PeerAlgorithm> algorithm_for(const AllReduceTable& table,
                                                      std::int64_t size_bytes) const;
  ncclComm_t nccl(const Stream<Cuda>& stream) const;
  void connect_peers(Context<Cuda>& ctx, const CudaCommunicatorOptions& options);
  bool exchange_works(Context<Cuda>& ctx);
  void warm_up(Context<Cuda>& ctx);

  ControlPlane& control_;
  Stream<Cuda>& compute_;
  int prefill_max_ctas_;
  AllReduceTable table_, seam_table_;  ///< Of bare sums; of sums with residual and norm.
  std::int32_t row_blocks_ = 0;
  std::unique_ptr<NcclComm> decode_, prefill_;
  /// By which kernel all ranks multiply and add at once (kLibrary: none), by rows and activity.
  std::map<std::pair<std::int64_t, Activity>, kernels::DecodeKernel> fused_;
  std::unique_ptr<PeerMemory> peers_;
};

}  // namespace tandem::comm
