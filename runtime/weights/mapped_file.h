// SPDX-License-Identifier: Apache-2.0
// A file mapped read-only into memory. Pages are read when they are touched and shared with the
// other ranks of a host through the page cache. Immutable, not movable; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace tandem::runtime {

class MappedFile {
 public:
  /// ConfigError when the file is missing, unreadable or empty.
  explicit MappedFile(const std::filesystem::path& path);
  /// A view of bytes that the caller keeps, seen as a file called `name`: for tests and fuzzing.
  MappedFile(std::string name, std::span<const std::byte> bytes)
      : path_(std::move(name)), data_(bytes.data()), size_(bytes.size()) {}
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// Pages read so far leave this process's memory; the page cache keeps them.
  void release_pages() const noexcept;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  bool is_mapped_ = false;
};

}  // namespace tandem::runtime
