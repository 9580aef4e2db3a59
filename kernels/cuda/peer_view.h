// SPDX-License-Identifier: Apache-2.0
// What a kernel needs to talk to the other ranks of its group by loads and stores: the address of
// every rank's workspace as seen from here, and this rank's own counters. Plain data, passed by
// value to kernels; `comm/peer_memory` owns what it points to. All workspaces have the layout of
// `PeerLayout` and start zeroed. One collective at a time per view.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::kernels {

inline constexpr int kMaxPeers = 8;
inline constexpr int kPeerBlocks = 128;  ///< Largest grid of a peer kernel; all co-resident.

/// Kernel families with counters and regions of their own: mixing them in any order is safe.
enum class PeerFamily : std::int32_t { kPush, kPull, kTwoShot };
inline constexpr int kPeerFamilies = 3;
inline constexpr int kMaxSumsBlocks = 256;  ///< Of a matmul that adds over ranks: one per SM.

struct PeerView {
  std::int32_t rank = 0, size = 1;
  std::byte* peers[kMaxPeers] = {};       ///< [size] workspaces; peers[rank] is local.
  std::uint32_t* epochs = nullptr;        ///< [kPeerFamilies, kPeerBlocks] calls so far, local.
  std::uint32_t* sums_epochs = nullptr;   ///< [kMaxSumsBlocks] the same of matmuls with their sums.
  std::uint32_t* error_word = nullptr;    ///< Local; not 0: every spin returns at once.
  std::int32_t max_blocks = kPeerBlocks;  ///< Of a grid; equal on all ranks.
  std::int32_t row_blocks = 0;  ///< Blocks that share a row that is normed; 0: `row_grid` decides.
  std::uint64_t spin_limit_ns = 120'000'000'000;  ///< A longer spin sets the error word.
};

/// Offsets in bytes. Every block has its own part of every region, so that a block's counter alone
/// tells which of the two halves it uses, whatever grids other calls had.
struct PeerLayout {
  static constexpr std::int64_t kPushPacks = 512;   ///< 16-byte packs of a block, push.
  static constexpr std::int64_t kPullPacks = 2048;  ///< The same, pull and two-shot.
  static constexpr std::int64_t kFlagSets = 3;      ///< pull, two-shot before and after the sum

  std::int64_t size = 1;  ///< Ranks.

  static constexpr std::int64_t flag(std::int64_t set, std::int64_t block, std::int64_t source) {
    return ((set * kPeerBlocks + block) * kMaxPeers + source) * 4;
  }
  static constexpr std::int64_t flags_bytes() { return kFlagSets * kPeerBlocks * kMaxPeers * 4; }

  /// [half][source][block] of kPushPacks places of 32 bytes: 16 of data, each 4 beside the epoch.
  constexpr std::int64_t push(std::int64_t half, std::int64_t source, std::int64_t block) const {
    return flags_bytes() + ((half * size + source) * kPeerBlocks + block) * kPushPacks * 32;
  }
  /// Where in its block's part a pack has its first 16 bytes; the other 16 are kPushApart behind
  /// them. So a warp's stores of either kind fill whole lines, and none crosses a link in pieces.
  static constexpr std::int64_t kPushApart = 32 * 16;
  static constexpr std::int64_t push_place(std::int32_t pack) {
    const auto number = static_cast<std::uint32_t>(pack);
    return number / 32 * 1024 + number % 32 * 16;
  }
  /// [region][half][block][pack] of 16 bytes; regions: pull, two-shot inputs, two-shot sums.
  constexpr std::int64_t pull(std::int64_t region, std::int64_t half, std::int64_t block) const {
    return push(2, 0, 0) + ((region * 2 + half) * kPeerBlocks + block) * kPullPacks * 16;
  }
  /// [half][source] of kSums 8-byte words: sums of a matmul that are added over ranks where they
  /// are made, each a float beside the epoch, or two of 2 bytes.
  static constexpr std::int64_t kSums = 131072;
  static constexpr std::int64_t sums_bytes() { return kSums * 8; }
  constexpr std::int64_t sums(std::int64_t half, std::int64_t source) const {
    return pull(3, 0, 0) + (half * size + source) * sums_bytes();
  }
  constexpr std::int64_t size_bytes() const { return sums(2, 0); }
};

}  // namespace tandem::kernels
