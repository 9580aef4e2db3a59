// SPDX-License-Identifier: Apache-2.0
// Where weights are assembled on their way to a device. For the CPU that is where they stay. For a
// GPU it is a ring of pinned memory: a piece is copied to the device while the next ones are read
// from the files. Used by one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/device/buffer.h"
#include "kernels/device/device.h"
#include "kernels/device/host_buffer.h"
#include "parallel/shard.h"

namespace tandem::runtime {

template <Device D>
class WeightStaging {
 public:
  /// [rows, cols] on the device. `fill(range of rows, to)` writes whole rows; a piece is a multiple
  /// of 32 rows, so that no interleaved block is split. Copies are enqueued on the compute stream
  /// and may be under way on return.
  template <typename T, typename Fill>
  Buffer<T, D> assemble(Context<D>& ctx, std::int64_t rows, std::int64_t cols, const Fill& fill) {
    constexpr std::int64_t kUnit = 32;
    const std::int64_t row_bytes = cols * static_cast<std::int64_t>(sizeof(T));
    const std::int64_t step = std::max(kPieceBytes / row_bytes / kUnit, std::int64_t{1}) * kUnit;
    Buffer<T, D> device(rows * cols);
    for (std::int64_t begin = 0; begin < rows; begin += step) {
      const parallel::Range piece{begin, std::min(begin + step, rows)};
      T* host = static_cast<T*>(next(piece.size() * row_bytes));
      fill(piece, host);
      copy_to_device(ctx, device.data() + begin * cols, host, piece.size() * row_bytes);
      ring_[turn_].copied.record(ctx.compute());
    }
    return device;
  }

  /// Small constants.
  template <typename T>
  Buffer<T, D> place(Context<D>& ctx, Buffer<T, Cpu> host) {
    Buffer<T, D> device(host.size());
    copy_to_device(ctx, device.data(), host.data(), host.size_bytes());
    return device;
  }

 private:
  static constexpr std::int64_t kPieceBytes = std::int64_t{64} << 20;
  struct Piece {
    HostBuffer<std::byte, D> memory;
    Event<D> copied;
    bool used = false;
  };

  /// Pinned memory whose last copy is done.
  void* next(std::int64_t size_bytes) {
    turn_ = (turn_ + 1) % ring_.size();
    Piece& piece = ring_[turn_];
    if (piece.used) piece.copied.synchronize();
    if (piece.memory.size() < size_bytes)
      piece.memory = HostBuffer<std::byte, D>(std::max(size_bytes, kPieceBytes));
    piece.used = true;
    return piece.memory.data();
  }

  std::array<Piece, 3> ring_;
  std::size_t turn_ = 0;
};

template <>
class WeightStaging<Cpu> {
 public:
  template <typename T, typename Fill>
  Buffer<T, Cpu> assemble(Context<Cpu>&, std::int64_t rows, std::int64_t cols, const Fill& fill) {
    Buffer<T, Cpu> host(rows * cols);
    fill(parallel::Range{0, rows}, host.data());
    return host;
  }
  template <typename T>
  Buffer<T, Cpu> place(Context<Cpu>&, Buffer<T, Cpu> host) {
    return host;
  }
};

}  // namespace tandem::runtime
