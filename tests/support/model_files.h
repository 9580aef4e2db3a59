// SPDX-License-Identifier: Apache-2.0
// Writes small safetensors and GGUF files byte by byte, right or wrong on purpose, for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "support/config_error.h"

namespace tandem::testing {

inline void write_file(const std::filesystem::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

template <typename T>
std::string bytes_of(T value) {
  std::string out(sizeof value, '\0');
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  std::string out;
  for (T value : values) out += bytes_of(value);
  return out;
}

/// Header length, header, data.
inline std::string safetensors(const std::string& header, const std::string& data) {
  return bytes_of(std::uint64_t{header.size()}) + header + data;
}

/// A GGUF file in the making: fields may be set to wrong values before `bytes`.
class GgufBuilder {
 public:
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::int64_t extra_tensors = 0, extra_pairs = 0;  ///< Added to the counts in the header.
  std::uint64_t alignment = 32;

  static std::string text(std::string_view value) {
    return bytes_of(std::uint64_t{value.size()}) + std::string(value);
  }
  /// A metadata pair of GGUF value type `type` with raw value bytes.
  GgufBuilder& pair(std::string_view key, std::uint32_t type, const std::string& value) {
    pairs_ += text(key) + bytes_of(type) + value;
    ++num_pairs_;
    return *this;
  }
  GgufBuilder& u32(std::string_view key, std::uint32_t value) {
    return pair(key, 4, bytes_of(value));
  }
  GgufBuilder& f32(std::string_view key, float value) { return pair(key, 6, bytes_of(value)); }
  GgufBuilder& string(std::string_view key, std::string_view value) {
    return pair(key, 8, text(value));
  }
  /// `extents` innermost first, as the format has them; `offset` -1: right behind the one before.
  GgufBuilder& tensor(std::string_view name, const std::vector<std::uint64_t>& extents,
                      std::uint32_t type, const std::string& data, std::int64_t offset = -1) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    const std::uint64_t at = offset < 0 ? data_.size() : static_cast<std::uint64_t>(offset);
    tensors_ += text(name) + bytes_of(static_cast<std::uint32_t>(extents.size())) +
                bytes_of(extents) + bytes_of(type) + bytes_of(at);
    data_ += data;
    ++num_tensors_;
    return *this;
  }
  std::string bytes() const {
    std::string out = magic + bytes_of(version) + bytes_of(num_tensors_ + extra_tensors) +
                      bytes_of(num_pairs_ + extra_pairs) + pairs_ + tensors_;
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data_;
  }

 private:
  std::int64_t num_pairs_ = 0, num_tensors_ = 0;
  std::string pairs_, tensors_, data_;
};

}  // namespace tandem::testing
