// SPDX-License-Identifier: Apache-2.0
// Matrix products with a weight that was prepared once at load.
// `LinearWeight<T, D>` owns a weight `[N, K]` in the form its device multiplies fastest: on the CPU
// bfloat16 packed (kernels/cpu/packed_weight.h) or in the few bits of the model's file
// (kernels/cpu/quantized_weight.h), else plain row-major. One copy per tensor; prefill and decode
// read the same bytes. T, the type of x, is float, BFloat16 or Float16.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/device/buffer.h"
#include "kernels/device/dtype.h"
#include "kernels/quant_block.h"

namespace tandem::kernels {

template <typename T, Device D>
class LinearWeight;

template <typename T>
class LinearWeight<T, Cpu> {
 public:
  LinearWeight();
  /// Takes the row-major `[rows, cols]` weight from host memory to the context's arena, bfloat16
  /// packed. Synchronous.
  LinearWeight(Context<Cpu>& ctx, Buffer<T, Cpu> row_major, std::int64_t rows, std::int64_t cols);
  /// The same for `[rows, cols / 32]` blocks of few bits, which stay so; T is BFloat16.
  LinearWeight(Context<Cpu>& ctx, const QuantFormat& format, Buffer<QuantBlock, Cpu> row_major,
               std::int64_t rows, std::int64_t cols);
  LinearWeight(LinearWeight&&) noexcept;
  LinearWeight& operator=(LinearWeight&&) noexcept;
  ~LinearWeight();

  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  std::int64_t size_bytes() const { return size_bytes_; }

  /// Row `row` to `out` `[cols]`: a tied embedding is read from the head.
  void copy_row(std::int64_t row, T* out) const;
  template <typename Out>  // `matmul`'s body
  void multiply(Context<Cpu>& ctx, TensorView<const T, Cpu> x, TensorView<Out, Cpu> y) const;

 private:
  struct Library;
  const T* values() const { return reinterpret_cast<const T*>(data_.get()); }
  template <typename Out>
  void multiply_quantized(Context<Cpu>& ctx, TensorView<const T, Cpu> x,
                          TensorView<Out, Cpu> y) const;

  std::int64_t rows_ = 0, cols_ = 0, size_bytes_ = 0;
  std::optional<QuantFormat> format_;  ///< None: of values.
  std::shared_ptr<std::byte> data_;
  std::unique_ptr<Library> library_;
};

template <typename T>
class LinearWeight<T, Cuda> {
 public:
  LinearWeight() = default;
  /// Takes a row-major `[rows, cols]` weight that already lies in device memory.
  LinearWeight(Context<Cuda>&, Buffer<T, Cuda> row_major, std::int64_t rows, std::int64_t cols)
      : rows_(rows), cols_(cols), data_(std::move(row_major)) {}

  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  std::int64_t size_bytes() const { return data_.size_bytes(); }
  const T* data() const { return data_.data(); }

 private:
  std::int64_t rows_ = 0, cols_ = 0;
  Buffer<T, Cuda> data_;
};

/// y = x W^T: x `[M, K]`, W `[N, K]`, y `[M, N]`; float accumulation, one rounding to Out, which
/// is T or float. Enqueued on the compute stream.
template <typename T, typename Out>
void matmul(Context<Cpu>& ctx, TensorView<const T, Cpu> x, const LinearWeight<T, Cpu>& w,
            TensorView<Out, Cpu> y);
template <typename T, typename Out>
void matmul(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const LinearWeight<T, Cuda>& w,
            TensorView<Out, Cuda> y);

}  // namespace tandem::kernels
