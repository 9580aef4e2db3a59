// SPDX-License-Identifier: Apache-2.0
// Memory that all ranks of one host write to and read from: an exchange of a few kilobytes costs a
// store and a load instead of a message. Every rank has two slots and uses them in turns, so that a
// rank may write its next piece while others still read the last one. Step thread only; collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "comm/control_plane.h"

namespace tandem::comm {

class SharedBoard {
 public:
  static constexpr std::int64_t kSlotBytes = std::int64_t{256} << 10;

  /// Null on every rank when the ranks do not share a host, or its /dev/shm has no room.
  static std::unique_ptr<SharedBoard> create(ControlPlane& control);
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;
  ~SharedBoard();

  /// Writes this rank's piece, at most `kSlotBytes`, and waits for everybody's of the same call.
  /// Rank r's then lies at the result + r * kSlotBytes until the next exchange.
  const std::byte* exchange(const void* mine, std::int64_t size_bytes);

 private:
  SharedBoard(void* memory, std::size_t size_bytes, int rank, int ranks);

  std::byte* memory_;  ///< [ranks] counts of exchanges, one per cache line; [2, ranks] slots
  std::size_t size_bytes_;
  int rank_, ranks_;
  int looks_;  ///< At a count in one poll; with cores to spare, more than a usual skew lasts.
  std::uint64_t exchanges_ = 0;
};

}  // namespace tandem::comm
