// SPDX-License-Identifier: Apache-2.0
// What was timed for the shapes of matmuls, kept in a text file so that the next start need not
// time again. The file's first line says what the times are of (`TuningFile`); a file of another
// line, and a damaged one, is ignored as a whole, with one line in the log, and replaced. A file
// that cannot be written costs one warning. Used from the step thread; many ranks of a host, and
// hosts that share a home, may share the file: nothing that one of them kept is lost.
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

/// Where times are kept, and what they are of.
struct TuningFile {
  std::filesystem::path path;
  std::string identity;  ///< One line.
};

/// `kWords` numbers for each shape.
template <std::size_t kWords>
class MatmulCache {
 public:
  using Words = std::array<std::uint64_t, kWords>;

  /// Reads the file when it exists.
  explicit MatmulCache(TuningFile file);

  std::optional<Words> find(const MatmulShape& shape) const;
  void insert(const MatmulShape& shape, const Words& words);
  /// Adds what other ranks wrote meanwhile and replaces the file in one step; nothing to do when
  /// nothing was inserted.
  void save();
  std::size_t size() const { return entries_.size(); }

 private:
  using Entries = std::map<MatmulShape, Words>;
  /// Nothing when the file is absent; when it is no good, `problem` says why.
  std::optional<Entries> read(std::string& problem) const;
  /// Empty, or what went wrong.
  std::string write() const;

  TuningFile file_;
  Entries entries_;
  bool dirty_ = false, warned_ = false;
};

extern template class MatmulCache<3>;
extern template class MatmulCache<8>;

/// $XDG_CACHE_HOME/tandem, else ~/.cache/tandem, else the system's temporary folder.
std::filesystem::path default_cache_folder();

}  // namespace tandem::kernels
