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
template <bool kWholePacks, typename E>
__device__ __forceinline__ Words load_message(const PeerMessage<E>& message, std::int64_t pack) {
  const std::int64_t begin = pack * Pack<E>::kSize;
  if constexpr (kWholePacks) {
    return load_whole(message.in + begin);
  } else {
    if (begin + Pack<E>::kSize <= message.elements) return load_whole(message.in + begin);
    Pack<E> part;
    for (int i = 0; i < Pack<E>::kSize; ++i)
      part.values[i] = begin + i < message.elements ? message.in[begin + i] : from_float<E>(0.0f);
    return to_words(part);
  }
}

/// Calls f(k, w) for this thread's packs of a row, at most kPacks: its k-th is the block's pack w.
template <int kPacks, typename F>
__device__ __forceinline__ void for_row_packs(const BlockPart& part, const F& f) {
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const auto w = static_cast<std::int32_t>(threadIdx.x + k * blockDim.x);
    if (w < part.width) f(k, w);
  }
}

/// This rank's packs. Those of the block's first row, mostly its only one, are loaded at once and
/// stay in registers; the others are loaded when they are used.
template <typename E, typename Epilogue>
class OwnPacks {
 public:
  static constexpr int kPacks = Epilogue::kPacksPerThread;

  __device__ OwnPacks(const PeerMessage<E>& message, const BlockPart& part, std::int64_t total)
      : message_(message), part_(part), total_(total) {
    for_row_packs<kPacks>(part, [&](int k, std::int32_t w) {
      if (is_there(part.first_row, w)) first_[k] = load(part.first_row, w);
    });
  }
  __device__ Words at(std::int32_t row, int k, std::int32_t w) const {
    return row == part_.first_row ? first_[k] : load(row, w);
  }
  /// Calls f(local pack number, pack) for this thread's packs of all rows.
  template <typename F>
  __device__ void for_each(const F& f) const {
    std::int32_t local = 0;
    for (std::int32_t row = part_.first_row; row < part_.rows; row += part_.row_step) {
      for_row_packs<kPacks>(part_, [&](int k, std::int32_t w) {
        if (is_there(row, w)) f(local + w, at(row, k, w));
      });
      local += part_.width;
    }
  }

 private:
  __device__ bool is_there(std::int32_t row, std::int32_t w) const {
    return Epilogue::kWholePacks || part_.pack(row, w) < total_;
  }
  __device__ Words load(std::int32_t row, std::int32_t w) const {
    return load_message<Epilogue::kWholePacks>(message_, part_.pack(row, w));
  }

  const PeerMessage<E>& message_;
  const BlockPart& part_;
  std::int64_t total_;
  Words first_[kPacks] = {};
};

/// Sums 16-byte packs at the same offset of every rank's workspace. kMost: no more ranks than that.
template <typename E, int kMost = kMaxPeers>
__device__ __forceinline__ Pack<E> sum_peers(const PeerView& view, std::int64_t offset) {
  Words words[kMost];
#pragma unroll
  for (int r = 0; r < kMost; ++r)
    if (r < view.size) words[r] = load_words(view.peers[r] + offset);
  float sum[Pack<E>::kSize];
#pragma unroll
  for (int r = 0; r < kMost; ++r)
    if (r < view.size) accumulate(sum, to_pack<E>(words[r]), r == 0);
  return round_pack<E>(sum);
}

/// kMost: no more ranks than that; for two there is much less to keep in registers.
template <PeerAlgorithm algorithm, int kMost, typename E>
class Reducer;

template <int kMost, typename E>
class Reducer<PeerAlgorithm::kPush, kMost, E> {
 public:
  static constexpr PeerFamily kFamily = PeerFamily::kPush;

  __device__ Reducer(const PeerView& view, std::uint32_t epoch)
      : view_(view), epoch_(epoch), layout_{view.size} {}

  template <typename Own>
  __device__ void prepare(const BlockPart&, const Own& own, SpinGuard&) {
    const std::int64_t to = layout_.push(epoch_ & 1, view_.rank, blockIdx.x);
    own.for_each([&](std::int32_t local, Words pack) {
      push_words(view_, to + PeerLayout::push_place(local), pack, epoch_);
    });
  }
  __device__ Pack<E> fetch(std::int32_t local, Words own, SpinGuard& guard) const {
    const std::byte* base = view_.peers[view_.rank] + PeerLayout::push_place(local);
    float sum[Pack<E>::kSize];
    poll_words<PeerLayout::kPushApart, kMost>(
        view_, epoch_, own, guard,
        [&](int r) { return base + layout_.push(epoch_ & 1, r, blockIdx.x); },
        [&](int r, Words words) { accumulate(sum, to_pack<E>(words), r == 0); });
    return round_pack<E>(sum);
  }

 private:
  const PeerView& view_;
  std::uint32_t epoch_;
  PeerLayout layout_;
};

template <int kMost, typename E>
class Reducer<PeerAlgorithm::kPull, kMost, E> {
 public:
  static constexpr PeerFamily kFamily = PeerFamily::kPull;

  __device__ Reducer(const PeerView& view, std::uint32_t epoch)
      : view_(view), epoch_(epoch), inputs_(PeerLayout{view.size}.pull(0, epoch & 1, blockIdx.x)) {}

  template <typename Own>
  __device__ void prepare(const BlockPart&, const Own& own, SpinGuard& guard) {
    std::byte* mine = view_.peers[view_.rank] + inputs_;
    own.for_each([&](std::int32_t local, Words pack) { store_words(mine + local * 16, pack); });
    peer_block_barrier(view_, 0, epoch_, guard);
  }
  __device__ Pack<E> fetch(std::int32_t local, Words, SpinGuard&) const {
    return sum_peers<E, kMost>(view_, inputs_ + local * 16);
  }

 private:
  const PeerView& view_;
  std::uint32_t epoch_;
  std::int64_t inputs_;
};

template <int kMost, typename E>
class Reducer<PeerAlgorithm::kTwoShot, kMost, E> {
 public:
  static constexpr PeerFamily kFamily = PeerFamily::kTwoShot;

  __device__ Reducer(const PeerView& view, std::uint32_t epoch)
      : view_(view),
        epoch_(epoch),
        inputs_(PeerLayout{view.size}.pull(1, epoch & 1, blockIdx.x)),
        sums_(PeerLayout{view.size}.pull(2, epoch & 1, blockIdx.x)) {}

  template <typename Own>
  __device__ void prepare(const BlockPart& part, const Own& own, SpinGuard& guard) {
    std::byte* mine = view_.peers[view_.rank] + inputs_;
    own.for_each([&](std::int32_t local, Words pack) { store_words(mine + local * 16, pack); });
    peer_block_barrier(view_, 1, epoch_, guard);
    // Of a short last row the packs beyond the message hold old bytes: summed, never read.
    const std::int32_t begin = part.size() * view_.rank / view_.size;
    const std::int32_t end = part.size() * (view_.rank + 1) / view_.size;
    for (std::int32_t local = begin + static_cast<std::int32_t>(threadIdx.x); local < end;
         local += static_cast<std::int32_t>(blockDim.x)) {
      const Words sum = to_words(sum_peers<E, kMost>(view_, inputs_ + local * 16));
      for (int step = 0; step < view_.size; ++step) {
        const int peer = (view_.rank + step) % view_.size;
        store_words(view_.peers[peer] + sums_ + local * 16, sum);
      }
    }
    peer_block_barrier(view_, 2, epoch_, guard);
  }
  __device__ Pack<E> fetch(std::int32_t local, Words, SpinGuard&) const {
    return to_pack<E>(load_words(view_.peers[view_.rank] + sums_ + local * 16));
  }

 private:
  const PeerView& view_;
  std::uint32_t epoch_;
  std::int64_t inputs_, sums_;
};

/// One all-reduce. `epilogue.row(...)` gets each row with a way to fetch its summed packs. All that
/// a row needs from this rank is loaded together, before anything waits for one of the loads.
template <PeerAlgorithm algorithm, int kMost, typename E, typename Epilogue>
__global__ void __launch_bounds__(512, kMost == 2 && Epilogue::kPacksPerThread == 1 ? 2 : 1)
    all_reduce_kernel(const __grid_constant__ PeerView view,
                      const __grid_constant__ PeerMessage<E> message,
                      const __grid_constant__ Epilogue epilogue) {
  using Algorithm = Reducer<algorithm, kMost, E>;
  pdl_trigger();  // The successor may bring its weights while we wait for the peers.
  const BlockPart part(message.grid);
  const std::int64_t total = (message.elements + Pack<E>::kSize - 1) / Pack<E>::kSize;
  typename Epilogue::State state;
  epilogue.begin(part, state);
  pdl_wait();
  const OwnPacks<E, Epilogue> own(message, part, total);
  epilogue.load(part, part.first_row, state);
  const std::uint32_t epoch = next_epoch(view, Algorithm::kFamily);
  SpinGuard guard(view);
  Algorithm reducer(view, epoch);
  reducer.prepare(part, own, guard);
  epilogue.join(state);
  std::int32_t local = 0;
  for (std::int32_t row = part.first_row; row < part.rows; row += part.row_step) {
    if (row != part.first_row) epilogue.load(part, row, state);
    epilogue.row(part, row, total, state, [&](int k, std::int32_t w) {
      return reducer.fetch(local + w, own.at(row, k, w), guard);
    });
    local += part.width;
  }
  __syncthreads();
  if (threadIdx.x == 0) finish_epoch(view, Algorithm::kFamily, epoch);
}

/// Launches with PDL; the grid depends on shapes only and is equal on all ranks.
template <PeerAlgorithm algorithm, int kMost, typename E, typename Epilogue>
void launch_all_reduce(Context<Cuda>& ctx, Stream<Cuda>& stream, const PeerView& view,
                       const PeerMessage<E>& message, const Epilogue& epilogue) {
  const PeerGrid& grid = message.grid;
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(grid.clusters * grid.cluster));
  shape.block = dim3(static_cast<unsigned>(grid.threads));
  shape.dependent = true;
  shape.cluster = grid.cluster;
  launch_on(ctx, stream, shape, all_reduce_kernel<algorithm, kMost, E, Epilogue>, view, message,
            epilogue);
}

template <typename E, typename Epilogue>
void launch_all_reduce(Context<Cuda>& ctx, Stream<Cuda>& stream, PeerAlgorithm algorithm,
                       const PeerView& view, const PeerMessage<E>& message,
                       const Epilogue& epilogue) {
  TANDEM_ASSERT(fits(algorithm, message.grid), message.grid.rows, " rows of ",
                message.grid.row_packs, " packs do not fit the peer workspace");
  const bool two = view.size == 2;
  switch (algorithm) {
    case PeerAlgorithm::kPush:
      return two ? launch_all_reduce<PeerAlgorithm::kPush, 2>(ctx, stream, view, message, epilogue)
                 : launch_all_reduce<PeerAlgorithm::kPush, kMaxPeers>(ctx, stream, view, message,
                                                                      epilogue);
    case PeerAlgorithm::kPull:
      return two ? launch_all_reduce<PeerAlgorithm::kPull, 2>(ctx, stream, view, message, epilogue)
                 : launch_all_reduce<PeerAlgorithm::kPull, kMaxPeers>(ctx, stream, view, message,
                                                                      epilogue);
    case PeerAlgorithm::kTwoShot:
      return launch_all_reduce<PeerAlgorithm::kTwoShot, kMaxPeers>(ctx, stream, view, message,
                                                                   epilogue);
  }
}

}  // namespace tandem::kernels
