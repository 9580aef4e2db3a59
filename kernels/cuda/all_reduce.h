// SPDX-License-Identifier: Apache-2.0
// All-reduce and all-gather over peer memory (`PeerView`), without NCCL. Sums are taken in rank
// order 0..n-1 in float with one rounding, so all algorithms give the same bits on all ranks.
//   push     every rank stores its data, with the call's number in every 8 bytes, into all peers;
//            they poll their own memory: one hop, no fence (NCCL's "LL" protocol, one-shot)
//   pull     every rank publishes its data and a flag; peers load it (one-shot)
//   two-shot every rank sums its part of the message and stores the sum into all peers
// Asynchronous, safe in captured graphs; counters live in device memory. All ranks must make the
// same calls with the same shapes. Every launch keeps the PDL rule of `launch.cuh`.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/add_norm.h"
#include "kernels/cuda/peer_view.h"
#include "kernels/device/cuda/context.h"

namespace tandem::kernels {

enum class PeerAlgorithm : std::uint8_t { kPush, kPull, kTwoShot };

/// How a message is dealt to blocks; equal on all ranks because it depends on the shape only.
/// `rows` of `row_packs` 16-byte packs; a cluster of blocks takes whole rows.
struct PeerGrid {
  std::int32_t rows = 0, row_packs = 0;
  std::int32_t cluster = 1;   ///< Blocks per row.
  std::int32_t clusters = 0;  ///< Rows at a time.
  std::int32_t threads = 0;
  std::int32_t packs_per_block() const {
    return (rows + clusters - 1) / clusters * (row_packs / cluster);
  }
};

/// A message without structure, for at most `max_blocks` blocks.
PeerGrid flat_grid(std::int64_t packs, std::int32_t max_blocks = kPeerBlocks);
/// A matrix whose rows are normed. `threads` 0: rows too long for one kernel. `row_blocks`: blocks
/// that share a row, where that is possible; 0 decides by the number of rows.
PeerGrid row_grid(std::int64_t rows, std::int64_t row_packs, std::int32_t max_blocks = kPeerBlocks,
                  std::int32_t row_blocks = 0);
/// Whether the workspace holds the message.
bool fits(PeerAlgorithm algorithm, const PeerGrid& grid);

/// data[i] = sum over ranks, in place; `data` is 16-byte aligned and fits `flat_grid`.
template <typename T>
void peer_all_reduce(Context<Cuda>& ctx, Stream<Cuda>& stream, const PeerView& view,
                     PeerAlgorithm algorithm, Span<T, Cuda> data);

/// Whether `peer_reduce_add_norm` can take these shapes and addresses.
template <typename T>
bool can_reduce_add_norm(const PeerView& view, PeerAlgorithm algorithm, TensorView<T, Cuda> partial,
                         const AddNormArgs<T, Cuda>& args);

/// The sum over ranks of `partial` `[tokens, hidden]`, rounded to T, is the branch of `add_norm`;
/// one kernel.
template <typename T>
void peer_reduce_add_norm(Context<Cuda>& ctx, Stream<Cuda>& stream, const PeerView& view,
                          PeerAlgorithm algorithm, TensorView<T, Cuda> partial,
                          const AddNormArgs<T, Cuda>& args);

/// Largest part of one rank that `peer_all_gather` takes.
inline constexpr std::int64_t kMaxPeerGatherBytes = kPeerBlocks * PeerLayout::kPushPacks * 16;

/// Rank r gives `counts_bytes[r]` bytes; out holds them one after the other, on every rank. Any
/// alignment. Push family.
void peer_all_gather(Context<Cuda>& ctx, Stream<Cuda>& stream, const PeerView& view,
                     const void* mine, void* out, const std::vector<std::int64_t>& counts_bytes);

}  // namespace tandem::kernels
