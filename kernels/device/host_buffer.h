// SPDX-License-Identifier: Apache-2.0
// Host memory that device D's copy engine reads and writes directly: page-locked for CUDA, plain
// for the CPU. Copies from and to it are asynchronous; the owner keeps it alive until they are
// done. Move-only; allocated at start-up.
#pragma once

#include <utility>

#include "kernels/device/buffer.h"

namespace tandem {

/// Contents undefined, page aligned for CUDA. Throws `Error` when there is not enough.
void* allocate_host(Cpu, std::size_t size_bytes);
void deallocate_host(Cpu, void* memory) noexcept;
void* allocate_host(Cuda, std::size_t size_bytes);
void deallocate_host(Cuda, void* memory) noexcept;

template <typename T, Device D>
class HostBuffer {
 public:
  HostBuffer() = default;
  explicit HostBuffer(std::int64_t size)
      : data_(size == 0 ? nullptr
                        : static_cast<T*>(
                              allocate_host(D{}, static_cast<std::size_t>(size) * sizeof(T)))),
        size_(size) {}
  HostBuffer(HostBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  HostBuffer& operator=(HostBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  ~HostBuffer() {
    if (data_ != nullptr) deallocate_host(D{}, data_);
  }

  T* data() const { return data_; }
  std::int64_t size() const { return size_; }
  std::int64_t size_bytes() const { return size_ * static_cast<std::int64_t>(sizeof(T)); }
  T& operator[](std::int64_t i) const { return data_[i]; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size_; }

 private:
  T* data_ = nullptr;
  std::int64_t size_ = 0;
};

}  // namespace tandem
