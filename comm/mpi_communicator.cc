// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <numeric>

#include "comm/communicator.h"
#include "comm/mpi_check.h"
#include "comm/mpi_wait.h"
#include "kernels/device/cpu/context.h"
#include "kernels/device/dtype.h"
#include "kernels/op_work.h"

namespace tandem::comm {
namespace {

/// Below this a message costs latency, not bandwidth: one exchange instead of two.
constexpr std::int64_t kOneShotMaxBytes = 32 << 10;
/// Largest piece of a sum: bounds the staging memory and keeps MPI's int counts in range.
constexpr std::int64_t kMaxPieceBytes = 64 << 20;
constexpr std::int64_t kBlock = 512;

/// On the board every rank sums everything: for more than a few ranks only while that is little.
bool sums_on_board(std::int64_t size_bytes, int ranks) {
  return ranks <= 4 || size_bytes <= kOneShotMaxBytes;
}

int to_count(std::int64_t value) {
  TANDEM_ASSERT(value >= 0 && value <= INT32_MAX, value, " bytes in one MPI message");
  return static_cast<int>(value);
}

/// out[i] = sum over r of inputs[r * stride + i], in rank order, in float, rounded once.
template <typename T>
void sum_in_rank_order(Context<Cpu>& ctx, const T* inputs, std::int64_t stride, int ranks, T* out,
                       std::int64_t count) {
  const std::int64_t blocks = (count + kBlock - 1) / kBlock;
#pragma omp parallel for num_threads(ctx.threads()) if (blocks >= 64)
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t begin = block * kBlock;
    const std::int64_t size = std::min(kBlock, count - begin);
    float sum[kBlock];
    for (std::int64_t i = 0; i < size; ++i) sum[i] = static_cast<float>(inputs[begin + i]);
    for (int r = 1; r < ranks; ++r) {
      const T* input = inputs + r * stride + begin;
      for (std::int64_t i = 0; i < size; ++i) sum[i] += static_cast<float>(input[i]);
    }
    for (std::int64_t i = 0; i < size; ++i) out[begin + i] = T(sum[i]);
  }
}

/// One all-gather, then every rank sums everything.
template <typename T>
void one_shot_sum(Context<Cpu>& ctx, MPI_Comm comm, int ranks, Span<T, Cpu> data, T* staging) {
  const int bytes = to_count(data.size * static_cast<std::int64_t>(sizeof(T)));
  MPI_Request request = MPI_REQUEST_NULL;
  TANDEM_CHECK_MPI(
      MPI_Iallgather(data.data, bytes, MPI_BYTE, staging, bytes, MPI_BYTE, comm, &request));
  wait_for(request, kDataWait);
  sum_in_rank_order(ctx, staging, data.size, ranks, data.data, data.size);
}

/// Reduce-scatter by all-to-all (rank p sums part p), then all-gather of the parts.
template <typename T>
void two_shot_sum(Context<Cpu>& ctx, MPI_Comm comm, int rank, int ranks, Span<T, Cpu> data,
                  T* staging) {
  const std::int64_t part = (data.size + ranks - 1) / ranks;
  const auto part_size = [&](int r) {
    return std::max<std::int64_t>(0, std::min(part, data.size - r * part));
  };
  const std::int64_t mine = part_size(rank);
  std::vector<int> parts, part_offsets, pieces, piece_offsets;
  for (int r = 0; r < ranks; ++r) {
    parts.push_back(to_count(part_size(r) * static_cast<std::int64_t>(sizeof(T))));
    part_offsets.push_back(
        to_count(std::min(data.size, r * part) * static_cast<std::int64_t>(sizeof(T))));
    pieces.push_back(to_count(mine * static_cast<std::int64_t>(sizeof(T))));
    piece_offsets.push_back(to_count(r * mine * static_cast<std::int64_t>(sizeof(T))));
  }
  MPI_Request request = MPI_REQUEST_NULL;
  TANDEM_CHECK_MPI(MPI_Ialltoallv(data.data, parts.data(), part_offsets.data(), MPI_BYTE, staging,
                                  pieces.data(), piece_offsets.data(), MPI_BYTE, comm, &request));
  wait_for(request, kDataWait);
  T* my_part = data.data + std::min(data.size, rank * part);
  sum_in_rank_order(ctx, staging, mine, ranks, my_part, mine);
  TANDEM_CHECK_MPI(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, data.data, parts.data(),
                                   part_offsets.data(), MPI_BYTE, comm, &request));
  wait_for(request, kDataWait);
}

}  // namespace

Communicator<Cpu>::Communicator(ControlPlane& control, bool share_memory)
    : rank_(control.rank()), size_(control.size()), progress_(control.progress()) {
  TANDEM_CHECK_MPI(MPI_Comm_dup(control.handle(), &comm_));
  if (size_ > 1 && share_memory) board_ = SharedBoard::create(control);
}

Communicator<Cpu>::~Communicator() { MPI_Comm_free(&comm_); }

template <typename T>
void Communicator<Cpu>::all_reduce_sum(Context<Cpu>& ctx, Span<T, Cpu> data) {
  if (size_ == 1) return;
  const StageScope stage(progress_, StageKind::kCollective, "all-reduce");
  const OpTimer timer(ctx, Activity::kAllReduce,
                      [&] { return kernels::message_work(data.size * std::int64_t{sizeof(T)}); });
  constexpr auto kElementBytes = static_cast<std::int64_t>(sizeof(T));
  if (board_ != nullptr && sums_on_board(data.size * kElementBytes, size_)) {
    constexpr std::int64_t kSlot = SharedBoard::kSlotBytes / kElementBytes;
    for (std::int64_t begin = 0; begin < data.size; begin += kSlot) {
      const Span<T, Cpu> piece = data.subspan(begin, std::min(data.size - begin, kSlot));
      const std::byte* all = board_->exchange(piece.data, piece.size * kElementBytes);
      sum_in_rank_order(ctx, reinterpret_cast<const T*>(all), kSlot, size_, piece.data, piece.size);
    }
    return;
  }
  for (std::int64_t begin = 0; begin < data.size;) {
    const std::int64_t count = std::min(data.size - begin, kMaxPieceBytes / kElementBytes);
    const Span<T, Cpu> piece = data.subspan(begin, count);
    const bool one_shot = count * kElementBytes <= kOneShotMaxBytes;
    const std::int64_t staged = one_shot ? count * size_ : count + size_ * std::int64_t{size_};
    if (staging_.size() < static_cast<std::size_t>(staged * kElementBytes)) {
      const PhaseScope mapping(ctx.recorder(), Activity::kMap);
      staging_.resize(static_cast<std::size_t>(staged * kElementBytes));
    }
    T* staging = reinterpret_cast<T*>(staging_.data());
    if (one_shot)
      one_shot_sum(ctx, comm_, size_, piece, staging);
    else
      two_shot_sum(ctx, comm_, rank_, size_, piece, staging);
    begin += count;
  }
}

template void Communicator<Cpu>::all_reduce_sum(Context<Cpu>&, Span<float, Cpu>);
template void Communicator<Cpu>::all_reduce_sum(Context<Cpu>&, Span<BFloat16, Cpu>);
template void Communicator<Cpu>::all_reduce_sum(Context<Cpu>&, Span<Float16, Cpu>);

void Communicator<Cpu>::all_gather(Context<Cpu>& ctx, const void* mine, void* out,
                                   std::int64_t size_bytes) {
  const StageScope stage(progress_, StageKind::kCollective, "all-gather");
  const OpTimer timer(ctx, Activity::kAllGather, [&] { return kernels::message_work(size_bytes); });
  if (board_ != nullptr && size_bytes <= SharedBoard::kSlotBytes) {
    const std::byte* all = board_->exchange(mine, size_bytes);
    for (int r = 0; r < size_; ++r)
      std::memcpy(static_cast<std::byte*>(out) + r * size_bytes, all + r * SharedBoard::kSlotBytes,
                  static_cast<std::size_t>(size_bytes));
    return;
  }
  const int count = to_count(size_bytes);
  MPI_Request request = MPI_REQUEST_NULL;
  TANDEM_CHECK_MPI(MPI_Iallgather(mine, count, MPI_BYTE, out, count, MPI_BYTE, comm_, &request));
  wait_for(request, kDataWait);
}

void Communicator<Cpu>::all_gather_v(Context<Cpu>& ctx, const void* mine, void* out,
                                     const std::vector<std::int64_t>& counts_bytes) {
  TANDEM_ASSERT(counts_bytes.size() == static_cast<std::size_t>(size_), counts_bytes.size(),
                " counts for ", size_, " ranks");
  const StageScope stage(progress_, StageKind::kCollective, "all-gather");
  const OpTimer timer(ctx, Activity::kAllGather, [&] {
    return kernels::message_work(counts_bytes[static_cast<std::size_t>(rank_)]);
  });
  std::vector<int> counts, offsets;
  std::int64_t offset = 0;
  for (const std::int64_t bytes : counts_bytes) {
    counts.push_back(to_count(bytes));
    offsets.push_back(to_count(offset));
    offset += bytes;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  TANDEM_CHECK_MPI(MPI_Iallgatherv(mine, counts[static_cast<std::size_t>(rank_)], MPI_BYTE, out,
                                   counts.data(), offsets.data(), MPI_BYTE, comm_, &request));
  wait_for(request, kDataWait);
}

}  // namespace tandem::comm
