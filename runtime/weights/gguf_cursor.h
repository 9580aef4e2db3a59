// SPDX-License-Identifier: Apache-2.0
// Reads the little-endian numbers and strings of a GGUF header one after the other, never past
// the end of the file. Not thread-safe; a view of a mapped file.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/weights/gguf_reader.h"

namespace tandem::runtime {

class GgufCursor {
 public:
  explicit GgufCursor(const MappedFile& file) : file_(&file) {}

  std::int64_t position() const { return position_; }
  std::int64_t remaining() const {
    return static_cast<std::int64_t>(file_->bytes().size()) - position_;
  }

  template <typename T>
  T number(std::string_view what) {
    T value;
    take(&value, sizeof value, what);
    return value;
  }
  /// A count of items of at least `item_bytes` each: refused when the file cannot hold them.
  std::int64_t count(std::int64_t item_bytes, std::string_view what);
  std::string text(std::string_view what);
  /// A value of the given GGUF type number.
  GgufValue value(std::uint32_t type, std::string_view key);

  /// ConfigError: `<file>: <what>; the file is damaged, download it again`.
  [[noreturn]] void damaged(const std::string& what) const;

 private:
  void take(void* out, std::int64_t size_bytes, std::string_view what);
  GgufValue list(std::string_view key);

  const MappedFile* file_;
  std::int64_t position_ = 0;
};

}  // namespace tandem::runtime
