// SPDX-License-Identifier: Apache-2.0
// `Buffer` owns device memory, `Span` and `TensorView` look at it. The device is part of the type:
// giving host memory to a device op does not compile. Buffers are move-only and are allocated at
// start-up; a decode step allocates nothing (`allocation_count` proves it).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/device/device.h"
#include "kernels/device/error.h"

namespace tandem {

/// Raw memory of one device, 256-byte aligned, contents undefined. Throws `Error` (with the bytes
/// asked for) when there is not enough. Synchronous.
void* allocate(Cpu, std::size_t size_bytes);
void deallocate(Cpu, void* memory) noexcept;
void* allocate(Cuda, std::size_t size_bytes);
void deallocate(Cuda, void* memory) noexcept;

/// Calls of `allocate` on any device so far in this process.
std::int64_t allocation_count() noexcept;

/// `size` elements of device memory that somebody else owns.
template <typename T, Device D>
struct Span {
  T* data = nullptr;
  std::int64_t size = 0;

  Span subspan(std::int64_t begin, std::int64_t count) const {
    TANDEM_ASSERT(begin >= 0 && count >= 0 && begin + count <= size, begin, "+", count, " of ",
                  size);
    return {data + begin, count};
  }
};

/// A row-major matrix `[rows, cols]`; row r starts at `data + r * stride`.
template <typename T, Device D>
struct TensorView {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  TensorView() = default;
  TensorView(T* memory, std::int64_t num_rows, std::int64_t num_cols)
      : data(memory), rows(num_rows), cols(num_cols), stride(num_cols) {}

  T* row(std::int64_t r) const { return data + r * stride; }
  TensorView slice_rows(std::int64_t begin, std::int64_t count) const {
    TANDEM_ASSERT(begin >= 0 && begin + count <= rows, begin, "+", count, " of ", rows, " rows");
    TensorView part = *this;
    part.data = data + begin * stride;
    part.rows = count;
    return part;
  }
};

/// Owns `size` elements on device D.
template <typename T, Device D>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t size)
      : data_(size == 0
                  ? nullptr
                  : static_cast<T*>(allocate(D{}, static_cast<std::size_t>(size) * sizeof(T)))),
        size_(size) {}
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (data_ != nullptr) deallocate(D{}, data_);
  }

  T* data() const { return data_; }
  std::int64_t size() const { return size_; }
  std::int64_t size_bytes() const { return size_ * static_cast<std::int64_t>(sizeof(T)); }
  Span<T, D> span() const { return {data_, size_}; }
  /// The first rows * cols elements as a matrix.
  TensorView<T, D> view(std::int64_t rows, std::int64_t cols) const {
    TANDEM_ASSERT(rows * cols <= size_, rows, "x", cols, " of ", size_);
    return {data_, rows, cols};
  }

 private:
  T* data_ = nullptr;
  std::int64_t size_ = 0;
};

}  // namespace tandem
