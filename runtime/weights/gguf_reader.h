// SPDX-License-Identifier: Apache-2.0
// The GGUF container, version 3 (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md):
// metadata by key and tensors by GGUF name. Only the header is read; tensors point into the mapped
// file. Every count, length and offset of the file is checked before it is used. Immutable.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/weights/checkpoint.h"
#include "runtime/weights/mapped_file.h"

namespace tandem::runtime {

/// Whole numbers of every width are `int64_t`; so are the elements of lists of numbers or flags.
using GgufValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                               std::vector<double>, std::vector<std::string>>;

class GgufFile {
 public:
  /// Opens a file; of a split model, its first part and with it all others. ConfigError names the
  /// file and what is wrong with it.
  explicit GgufFile(const std::filesystem::path& path);
  /// One file alone.
  explicit GgufFile(std::shared_ptr<const MappedFile> file);

  const std::string& path() const { return files_.front()->path(); }
  const std::vector<std::shared_ptr<const MappedFile>>& files() const { return files_; }
  /// By GGUF name; shapes are row-major (GGUF lists the innermost extent first).
  const TensorMap& tensors() const { return tensors_; }
  const TensorEntry* find_tensor(std::string_view name) const;

  /// Null when there is no such key.
  const GgufValue* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }

  /// Typed access as in JsonFields: ConfigError names file and key when the value has another
  /// type or is out of range; the form without fallback also when it is absent.
  std::int64_t integer(std::string_view key, std::int64_t min, std::int64_t max) const;
  std::int64_t integer_or(std::string_view key, std::int64_t min, std::int64_t max,
                          std::int64_t fallback) const;
  double number(std::string_view key, double min, double max) const;
  double number_or(std::string_view key, double min, double max, double fallback) const;
  std::optional<bool> flag(std::string_view key) const;
  std::string text(std::string_view key) const;
  std::optional<std::string> text_if(std::string_view key) const;
  /// Empty when absent. T: int64_t, double or string.
  template <typename T>
  std::vector<T> list(std::string_view key) const;

 private:
  [[noreturn]] void wrong(std::string_view key, std::string_view expected) const;

  void add_parts(std::int64_t count);

  std::vector<std::shared_ptr<const MappedFile>> files_;  ///< The parts in order.
  std::map<std::string, GgufValue, std::less<>> metadata_;
  TensorMap tensors_;
};

}  // namespace tandem::runtime
