// SPDX-License-Identifier: Apache-2.0
// The body shared by all all-reduce kernels: an algorithm delivers summed packs of a block's part,
// an epilogue consumes them row by row. Blocks of a cluster share rows; nothing else is shared
// between blocks, so each synchronises with the same block of the other ranks only.
#pragma once

#include "kernels/cuda/all_reduce.h"
#include "kernels/cuda/peer_device.cuh"
#include "kernels/device/cuda/launch.cuh"

namespace tandem::kernels {

template <typename E>
struct PeerMessage {
  const E* in = nullptr;
  std::int64_t elements = 0;
  PeerGrid grid;
};

/// The packs that this block of the grid handles.
struct BlockPart {
  std::int32_t rows, row_packs, width, first_row, row_step, column;

  __device__ explicit BlockPart(const PeerGrid& grid)
      : rows(grid.rows),
        row_packs(grid.row_packs),
        width(grid.row_packs / grid.cluster),
        first_row(static_cast<std::int32_t>(blockIdx.x) / grid.cluster),
        row_step(grid.clusters),
        column(static_cast<std::int32_t>(blockIdx.x) % grid.cluster * width) {}

  /// Number in the message of pack `w` of this block's part of a row.
  __device__ std::int64_t pack(std::int32_t row, std::int32_t w) const {
    return std::int64_t{row} * row_packs + column + w;
  }
  /// Packs of the whole block, all its rows.
  __device__ std::int32_t size() const {
    return (rows - first_row + row_step - 1) / row_step * width;
  }
};

/// Zeros beyond the end: only the last pack of a flat message is short.
template <typename E>
__device__ __forceinline__ Pack<E> load_message(const PeerMessage<E>& message, std::int64_t pack) {
  const std::int64_t begin = pack * Pack<E>::kSize;
  if (begin + Pack<E>::kSize <= message.elements) return load_pack(message.in + begin);
  Pack<E> part;
  for (int i = 0; i < Pack<E>::kSize; ++i)
    part.values[i] = begin + i < message.elements ? message.in[begin + i] : from_float<E>(0.0f);
  return part;
}

/// Calls f(local pack number, message pack number) for this thread's packs of all rows.
template <typename F>
__device__ __forceinline__ void for_each_pack(const BlockPart& part, std::int64_t total, F f) {
  std::int32_t local = 0;
  for (std::int32_t row = part.first_row; row < part.rows; row += part.row_step) {
    for (std::int32_t w = static_cast<std::int32_t>(threadIdx.x); w < part.width;
         w += static_cast<std::int32_t>(blockDim.x))
      if (part.pack(row, w) < total) f(local + w, part.pack(row, w));
    local += part.width;
  }
}

/// Sums 16-byte packs at the same offset of every rank's workspace.
template <typename E>
__device__ __forceinline__ Pack<E> sum_peers(const PeerView& view, std::int64_t offset) {
  Words words[kMaxPeers];
#pragma unroll
  for (int r = 0; r < kMaxPeers; ++r)
    if (r < view.size) words[r] = load_words(view.peers[r] + offset);
  float sum[Pack<E>::kSize];
#pragma unroll
  for (int r = 0; r < kMaxPeers; ++r)
    if (r < view.size) accumulate(sum, to_pack<E>(words[r]), r == 0);
  return round_pack<E>(sum);
}

template <PeerAlgorithm algorithm, typename E>
class Reducer;

template <typename E>
class Reducer<PeerAlgorithm::kPush, E> {
 public:
  static constexpr PeerFamily kFamily = PeerFamily::kPush;

  __device__ Reducer(const PeerView& view, const PeerMessage<E>& message, std::uint32_t epoch)
      : view_(view), message_(message), epoch_(epoch), layout_{view.size} {}

  __device__ void prepare(const BlockPart& part, std::int64_t total, SpinGuard&) {
    const std::int64_t to = layout_.push(epoch_ & 1, view_.rank, blockIdx.x);
    for_each_pack(part, total, [&](std::int32_t local, std::int64_t pack) {
      push_words(view_, to + local * 32, to_words(load_message(message_, pack)), epoch_);
    });
  }
  __device__ Pack<E> fetch(std::int32_t local, std::int64_t pack, SpinGuard& guard) const {
    const std::byte* base = view_.peers[view_.rank] + local * 32;
    float sum[Pack<E>::kSize];
    poll_words(
        view_, epoch_, to_words(load_message(message_, pack)), guard,
        [&](int r) { return base + layout_.push(epoch_ & 1, r, blockIdx.x); },
        [&](int r, Words words) { accumulate(sum, to_pack<E>(words), r == 0); });
    return round_pack<E>(sum);
  }

 private:
  const PeerView& view_;
  const PeerMessage<E>& message_;
  std::uint32_t epoch_;
  PeerLayout layout_;
};

template <typename E>
class Reducer<PeerAlgorithm::kPull, E> {
 public:
  static constexpr PeerFamily kFamily = PeerFamily::kPull;

  __device__ Reducer(const PeerView& view, const PeerMessage<E>& message, std::uint32_t epoch)
      : view_(view),
        message_(message),
        epoch_(epoch),
        inputs_(PeerLayout{view.size}.pull(0, epoch & 1, blockIdx.x)) {}

  __device__ void prepare(const BlockPart& part, std::int64_t total, SpinGuard& guard) {
    std::byte* mine = view_.peers[view_.rank] + inputs_;
    for_each_pack(part, total, [&](std::int32_t local, std::int64_t pack) {
      store_words(mine + local * 16, to_words(load_message(message_, pack)));
    });
    peer_block_barrier(view_, 0, epoch_, guard);
  }
  __device__ Pack<E> fetch(std::int32_t local, std::int64_t, SpinGuard&) const {
    return sum_peers<E>(view_, inputs_ + local * 16);
  }

 private:
  const PeerView& view_;
  const PeerMessage<E>& message_;
  std::uint32_t epoch_;
  std::int64_t inputs_;
};

template <typename E>
class Reducer<PeerAlgorithm::kTwoShot, E> {
 public:
  static constexpr PeerFamily kFamily = PeerFamily::kTwoShot;

  __device__ Reducer(const PeerView& view, const PeerMessage<E>& message, std::uint32_t epoch)
      : view_(view),
        message_(message),
        epoch_(epoch),
        inputs_(PeerLayout{view.size}.pull(1, epoch & 1, blockIdx.x)),
        sums_(PeerLayout{view.size}.pull(2, epoch & 1, blockIdx.x)) {}

  __device__ void prepare(const BlockPart& part, std::int64_t total, SpinGuard& guard) {
    std::byte* mine = view_.peers[view_.rank] + inputs_;
    for_each_pack(part, total, [&](std::int32_t local, std::int64_t pack) {
      store_words(mine + local * 16, to_words(load_message(message_, pack)));
    });
    peer_block_barrier(view_, 1, epoch_, guard);
    // Of a short last row the packs beyond the message hold old bytes: summed, never read.
    const std::int32_t begin = part.size() * view_.rank / view_.size;
    const std::int32_t end = part.size() * (view_.rank + 1) / view_.size;
    for (std::int32_t local = begin + static_cast<std::int32_t>(threadIdx.x); local < end;
         local += static_cast<std::int32_t>(blockDim.x)) {
      const Words sum = to_words(sum_peers<E>(view_, inputs_ + local * 16));
      for (int step = 0; step < view_.size; ++step) {
        const int peer = (view_.rank + step) % view_.size;
        store_words(view_.peers[peer] + sums_ + local * 16, sum);
      }
    }
    peer_block_barrier(view_, 2, epoch_, guard);
  }
  __device__ Pack<E> fetch(std::int32_t local, std::int64_t, SpinGuard&) const {
    return to_pack<E>(load_words(view_.peers[view_.rank] + sums_ + local * 16));
  }

 private:
  const PeerView& view_;
  const PeerMessage<E>& message_;
  std::uint32_t epoch_;
  std::int64_t inputs_, sums_;
};

/// One all-reduce. `epilogue.row(...)` gets each row with a way to fetch its summed packs.
template <PeerAlgorithm algorithm, typename E, typename Epilogue>
__global__ void __launch_bounds__(512)
    all_reduce_kernel(const __grid_constant__ PeerView view,
                      const __grid_constant__ PeerMessage<E> message,
                      const __grid_constant__ Epilogue epilogue) {
  using Algorithm = Reducer<algorithm, E>;
  pdl_trigger();  // The successor may bring its weights while we wait for the peers.
  const BlockPart part(message.grid);
  typename Epilogue::State state;
  epilogue.begin(part, state);
  pdl_wait();
  const std::uint32_t epoch = next_epoch(view, Algorithm::kFamily);
  SpinGuard guard(view);
  const std::int64_t total = (message.elements + Pack<E>::kSize - 1) / Pack<E>::kSize;
  Algorithm reducer(view, message, epoch);
  reducer.prepare(part, total, guard);
  epilogue.join(state);
  std::int32_t local = 0;
  for (std::int32_t row = part.first_row; row < part.rows; row += part.row_step) {
    epilogue.row(part, row, total, state, [&](std::int32_t w) {
      return reducer.fetch(local + w, part.pack(row, w), guard);
    });
    local += part.width;
  }
  __syncthreads();
  if (threadIdx.x == 0) finish_epoch(view, Algorithm::kFamily, epoch);
}

/// Launches with PDL; the grid depends on shapes only and is equal on all ranks.
template <PeerAlgorithm algorithm, typename E, typename Epilogue>
void launch_all_reduce(Context<Cuda>& ctx, Stream<Cuda>& stream, const PeerView& view,
                       const PeerMessage<E>& message, const Epilogue& epilogue) {
  const PeerGrid& grid = message.grid;
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(grid.clusters * grid.cluster));
  shape.block = dim3(static_cast<unsigned>(grid.threads));
  shape.dependent = true;
  shape.cluster = grid.cluster;
  launch_on(ctx, stream, shape, all_reduce_kernel<algorithm, E, Epilogue>, view, message, epilogue);
}

template <typename E, typename Epilogue>
void launch_all_reduce(Context<Cuda>& ctx, Stream<Cuda>& stream, PeerAlgorithm algorithm,
                       const PeerView& view, const PeerMessage<E>& message,
                       const Epilogue& epilogue) {
  TANDEM_ASSERT(fits(algorithm, message.grid), message.grid.rows, " rows of ",
                message.grid.row_packs, " packs do not fit the peer workspace");
  switch (algorithm) {
    case PeerAlgorithm::kPush:
      return launch_all_reduce<PeerAlgorithm::kPush>(ctx, stream, view, message, epilogue);
    case PeerAlgorithm::kPull:
      return launch_all_reduce<PeerAlgorithm::kPull>(ctx, stream, view, message, epilogue);
    case PeerAlgorithm::kTwoShot:
      return launch_all_reduce<PeerAlgorithm::kTwoShot>(ctx, stream, view, message, epilogue);
  }
}

}  // namespace tandem::kernels
