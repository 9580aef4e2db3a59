// SPDX-License-Identifier: Apache-2.0
// Memory for what lasts as long as a model, handed out piece by piece from blocks that are asked of
// the kernel as huge pages: with 4 KiB pages a stream through weights spends half its time in
// address translation. Pieces keep their block alive; a block is unmapped with its last piece.
// Not thread-safe.
#pragma once

#include <cstddef>
#include <memory>

namespace tandem {

/// A huge page of x86-64; other pages are all right, only slower.
inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

class PageArena {
 public:
  /// `size_bytes` of zeros, 256-byte aligned. Throws `Error` when there is no memory.
  std::shared_ptr<std::byte> take(std::size_t size_bytes);

 private:
  static constexpr std::size_t kBlockBytes = std::size_t{64} << 20;
  std::shared_ptr<std::byte> block_;  ///< The one that pieces are cut from.
  std::size_t used_ = 0, size_ = 0;   ///< Bytes of it.
};

}  // namespace tandem
