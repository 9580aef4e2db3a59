// SPDX-License-Identifier: Apache-2.0
// A model's files seen as named tensors, whatever the format: safetensors (one or many files),
// GGUF v3, or `dummy` (seeded random values from a config.json alone). Files are mapped; reading
// a slice touches only the bytes of that slice, and `bytes_read` counts them. Names are Hugging
// Face names in every format (a GGUF file's names are translated, its Q/K permutation undone).
// Read-only after opening; `read` may be called from several threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/device/dtype.h"
#include "kernels/quant_block.h"
#include "runtime/model_config.h"

namespace tandem::runtime {

/// How a tensor's values are stored in its file.
enum class StorageType : std::uint8_t {
  kF32,  // one value per element
  kF16,
  kBF16,
  kQ8_0,  // GGUF blocks of 32
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kIQ4NL,
  kQ2K,  // GGUF super-blocks of 256
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kDummy,  // generated
};

class MappedFile;

using TensorMap = std::map<std::string, struct TensorEntry, std::less<>>;

struct TensorEntry {
  StorageType type = StorageType::kF32;
  std::vector<std::int64_t> shape;  ///< Row-major, Hugging Face order: `[out, in]` for linears.
  const std::byte* data = nullptr;  ///< First byte in the mapped file; null for kDummy.
  std::int64_t size_bytes = 0;
  std::uint64_t seed = 0;                 ///< kDummy: hash of (user seed, name).
  float dummy_mean = 0, dummy_scale = 0;  ///< kDummy: value = mean + scale * uniform(-1, 1).
  int permuted_heads = 0;  ///< GGUF Llama Q/K: rows are interleaved per head; 0 = not.
};

class Checkpoint {
 public:
  /// Folder with *.safetensors, or a `.gguf` file (first part of a split one).
  /// Each fault of the files is a ConfigError that names the file and what is wrong with it.
  static Checkpoint open(const std::filesystem::path& path);
  /// Random weights for `config`, same values at any rank count; no weight file is needed.
  static Checkpoint dummy(const ModelConfig& config, std::uint64_t seed);

  Checkpoint(Checkpoint&&) noexcept = default;
  Checkpoint& operator=(Checkpoint&&) noexcept = default;

  const TensorEntry* find(std::string_view name) const;  ///< Null when absent.
  const TensorEntry& at(std::string_view name) const;    ///< ConfigError when absent.
  const TensorMap& tensors() const { return tensors_; }

  /// ConfigError that names the first tensor that `config` needs and the files lack, that has
  /// another shape or type than `config` says, or that no weight of the model would be read from.
  void require_fits(const ModelConfig& config) const;

  /// Reads rows [row, row + num_rows) x columns [col, col + num_cols) of a matrix `[rows, cols]`
  /// into `out`, row-major with `out_stride` elements per row, converted to T (float, BFloat16,
  /// Float16) with one rounding. A vector is a matrix of one row.
  template <typename T>
  void read(const TensorEntry& entry, std::int64_t row, std::int64_t num_rows, std::int64_t col,
            std::int64_t num_cols, T* out, std::int64_t out_stride) const;

  /// The same of a matrix in few bits, whose blocks stay as they are: columns are whole blocks of
  /// 32, `out_stride` counts blocks.
  void read(const TensorEntry& entry, std::int64_t row, std::int64_t num_rows, std::int64_t col,
            std::int64_t num_cols, kernels::QuantBlock* out, std::int64_t out_stride) const;

  /// Gives the pages of the files that were read back to the page cache, so that they do not count
  /// as this process's memory. What is read later comes from there.
  void release_pages() const;

  /// Bytes of the files touched by `read` so far.
  std::int64_t bytes_read() const { return bytes_read_->load(); }

 private:
  Checkpoint() = default;
  TensorMap tensors_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::unique_ptr<std::atomic<std::int64_t>> bytes_read_ =
      std::make_unique<std::atomic<std::int64_t>>(0);
  std::string origin_;  ///< Folder or file, for errors.
};

/// Whether `folder` holds safetensors files.
bool has_safetensors(const std::filesystem::path& folder);

}  // namespace tandem::runtime
