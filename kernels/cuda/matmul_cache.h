// SPDX-License-Identifier: Apache-2.0
// Which cuBLASLt algorithm was fastest for a shape, kept in a text file so that the next start
// need not time again. One file per GPU name and cuBLASLt version: an algorithm's 64 bytes mean
// something to that library version only. A damaged line is skipped; a file that cannot be written
// costs a warning. Used from the step thread; ranks of a host may share the file.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "kernels/device/dtype.h"

namespace tandem::kernels {

/// y `[m, n]` = x `[m, k]` W`[n, k]`^T as the choice of an algorithm sees it.
struct MatmulShape {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t x_stride = 0, y_stride = 0;  ///< Elements.
  DType in = DType::kF32, out = DType::kF32;
  std::int32_t alignment_bytes = 16;  ///< Of all three pointers, at most 16.
  std::int32_t adds = 0;              ///< 1: the product is added to what is in y.
  std::int32_t sm_target = 0;         ///< SMs the matmul should plan for; 0: all.
  auto operator<=>(const MatmulShape&) const = default;
};

/// The m that stands for all m near it in the cache, at most 16384: the largest of them, so that no
/// other has more tiles.
std::int64_t m_bucket(std::int64_t m);

class MatmulCache {
 public:
  using Algorithm = std::array<std::uint64_t, 8>;

  /// Reads `file` when it exists.
  explicit MatmulCache(std::filesystem::path file);

  std::optional<Algorithm> find(const MatmulShape& shape) const;
  void insert(const MatmulShape& shape, const Algorithm& algorithm);
  /// Adds what other ranks wrote meanwhile and replaces the file in one step; nothing to do when
  /// nothing was inserted.
  void save();
  std::size_t size() const { return entries_.size(); }

 private:
  void read();
  std::filesystem::path file_;
  std::map<MatmulShape, Algorithm> entries_;
  bool dirty_ = false;
};

/// $XDG_CACHE_HOME/tandem, else ~/.cache/tandem, else the system's temporary folder.
std::filesystem::path default_cache_folder();

}  // namespace tandem::kernels
