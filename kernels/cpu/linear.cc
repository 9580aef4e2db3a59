// SPDX-License-Identifier: Apache-2.0
// Few rows are a matter of reading the weight once, which our own loops do best; many go through
// oneDNN where it is fast.
#include "kernels/linear.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/bf16_dot.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/packed_weight.h"
#include "kernels/cpu/plain_matmul.h"
#include "kernels/cpu/quantized_weight.h"
#include "kernels/device/cpu/context.h"

namespace tandem::kernels {
namespace {

/// oneDNN has no float16 on CPUs; that type takes the plain loops.
struct NoMatmul {};

/// Above it the values of a weight of few bits are made once for all rows, in tiles that stay in
/// the cache.
constexpr std::int64_t kMaxQuantizedRows = 16;
constexpr std::int64_t kTileBytes = 4 << 20;

}  // namespace

template <typename T>
struct LinearWeight<T, Cpu>::Library {
  std::conditional_t<std::is_same_v<T, Float16>, NoMatmul, cpu::OneDnnMatmul<T>> matmul;
  decltype(matmul) last_tile;  ///< Of a weight of few bits, which is multiplied in tiles.
};

template <typename T>
LinearWeight<T, Cpu>::LinearWeight() = default;
template <typename T>
LinearWeight<T, Cpu>::LinearWeight(LinearWeight&&) noexcept = default;
template <typename T>
LinearWeight<T, Cpu>& LinearWeight<T, Cpu>::operator=(LinearWeight&&) noexcept = default;
template <typename T>
LinearWeight<T, Cpu>::~LinearWeight() = default;

template <typename T>
LinearWeight<T, Cpu>::LinearWeight(Context<Cpu>& ctx, Buffer<T, Cpu> row_major, std::int64_t rows,
                                   std::int64_t cols)
    : rows_(rows), cols_(cols), library_(std::make_unique<Library>()) {
  constexpr bool kPacked = std::is_same_v<T, BFloat16>;
  const cpu::PackedShape shape{rows, cols};
  size_bytes_ = (kPacked ? shape.size() : rows * cols) * static_cast<std::int64_t>(sizeof(T));
  data_ = ctx.arena().take(static_cast<std::size_t>(size_bytes_));
  T* to = reinterpret_cast<T*>(data_.get());
  if constexpr (kPacked)
    cpu::pack(shape, row_major.data(), to);
  else
    std::copy_n(row_major.data(), rows * cols, to);
}

template <typename T>
LinearWeight<T, Cpu>::LinearWeight(Context<Cpu>& ctx, const QuantFormat& format,
                                   Buffer<QuantBlock, Cpu> row_major, std::int64_t rows,
                                   std::int64_t cols)
    : rows_(rows), cols_(cols), format_(format), library_(std::make_unique<Library>()) {
  TANDEM_ASSERT((std::is_same_v<T, BFloat16>), "weights of few bits are for rows of bfloat16");
  const cpu::QuantizedShape shape{format, rows, cols};
  size_bytes_ = shape.size_bytes();
  data_ = ctx.arena().take(static_cast<std::size_t>(size_bytes_));
  cpu::pack(shape, row_major.data(), data_.get());
}

template <typename T>
void LinearWeight<T, Cpu>::copy_row(std::int64_t row, T* out) const {
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (format_)
      return cpu::unpack_row(cpu::QuantizedShape{*format_, rows_, cols_}, data_.get(), row, out);
    const cpu::PackedShape shape{rows_, cols_};
    for (std::int64_t col = 0; col < cols_; ++col) out[col] = values()[shape.at(row, col)];
  } else {
    std::copy_n(values() + row * cols_, cols_, out);
  }
}

template <typename T>
template <typename Out>
void LinearWeight<T, Cpu>::multiply_quantized(Context<Cpu>& ctx, TensorView<const T, Cpu> x,
                                              TensorView<Out, Cpu> y) const {
  const cpu::QuantizedShape shape{*format_, rows_, cols_};
  if (x.rows <= kMaxQuantizedRows) return cpu::quantized_matmul(shape, data_.get(), x, y);
  const auto bytes = [](std::int64_t values) {
    return values * static_cast<std::int64_t>(sizeof(T));
  };
  const std::int64_t block_values = cpu::kBlockRows * cols_;
  const std::int64_t in_tile =
      std::clamp<std::int64_t>(kTileBytes / bytes(block_values), 1, shape.blocks());
  const std::int64_t tile_rows = std::min(in_tile * cpu::kBlockRows, rows_);
  // Libraries want y without gaps, so a part of its columns is made elsewhere.
  const bool in_place = tile_rows == rows_ && y.stride == rows_;
  std::byte* memory = ctx.scratch(bytes(in_tile * block_values) +
                                  (in_place ? 0 : x.rows * tile_rows * std::int64_t{sizeof(Out)}));
  T* tile = reinterpret_cast<T*>(memory);
  Out* apart = reinterpret_cast<Out*>(memory + bytes(in_tile * block_values));
  for (std::int64_t first = 0; first < shape.blocks(); first += in_tile) {
    const std::int64_t blocks = std::min(in_tile, shape.blocks() - first);
#pragma omp parallel for
    for (std::int64_t block = 0; block < blocks; ++block)
      cpu::unpack_block(shape, data_.get() + (first + block) * shape.block_bytes(),
                        tile + block * block_values);
    const std::int64_t row = first * cpu::kBlockRows;
    const std::int64_t count = std::min(tile_rows, rows_ - row);
    const TensorView<Out, Cpu> part(in_place ? y.data : apart, x.rows, count);
    if (!(count == tile_rows ? library_->matmul : library_->last_tile).multiply(x, tile, part))
      cpu::packed_matmul(cpu::PackedShape{count, cols_}, tile, x, part);
    if (in_place) return;
#pragma omp parallel for
    for (std::int64_t i = 0; i < x.rows; ++i) std::copy_n(part.row(i), count, y.row(i) + row);
  }
}

template <typename T>
template <typename Out>
void LinearWeight<T, Cpu>::multiply(Context<Cpu>& ctx, TensorView<const T, Cpu> x,
                                    TensorView<Out, Cpu> y) const {
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (format_) return multiply_quantized(ctx, x, y);
    if (x.rows <= cpu::kMaxDotRows && cpu::has_bf16_dot())
      return cpu::bf16_dot_matmul(cpu::PackedShape{rows_, cols_}, values(), x, y);
  }
  if constexpr (!std::is_same_v<T, Float16>)
    if (x.rows > 1 && library_->matmul.multiply(x, values(), y)) return;
  if constexpr (std::is_same_v<T, BFloat16>)
    cpu::packed_matmul(cpu::PackedShape{rows_, cols_}, values(), x, y);
  else
    cpu::plain_matmul(x, values(), rows_, y);
}

template <typename T, typename Out>
void matmul(Context<Cpu>& ctx, TensorView<const T, Cpu> x, const LinearWeight<T, Cpu>& w,
            TensorView<Out, Cpu> y) {
  TANDEM_ASSERT(x.cols == w.cols() && y.cols >= w.rows() && y.rows >= x.rows, "[", x.rows, ",",
                x.cols, "] x [", w.rows(), ",", w.cols(), "]^T -> [", y.rows, ",", y.cols, "]");
  if (x.rows == 0) return;
  TensorView<Out, Cpu> out = y;
  out.rows = x.rows;
  out.cols = w.rows();
  w.multiply(ctx, x, out);
}

template class LinearWeight<float, Cpu>;
template class LinearWeight<BFloat16, Cpu>;
template class LinearWeight<Float16, Cpu>;
template void matmul(Context<Cpu>&, TensorView<const float, Cpu>, const LinearWeight<float, Cpu>&,
                     TensorView<float, Cpu>);
template void matmul(Context<Cpu>&, TensorView<const BFloat16, Cpu>,
                     const LinearWeight<BFloat16, Cpu>&, TensorView<BFloat16, Cpu>);
template void matmul(Context<Cpu>&, TensorView<const BFloat16, Cpu>,
                     const LinearWeight<BFloat16, Cpu>&, TensorView<float, Cpu>);
template void matmul(Context<Cpu>&, TensorView<const Float16, Cpu>,
                     const LinearWeight<Float16, Cpu>&, TensorView<Float16, Cpu>);
template void matmul(Context<Cpu>&, TensorView<const Float16, Cpu>,
                     const LinearWeight<Float16, Cpu>&, TensorView<float, Cpu>);

}  // namespace tandem::kernels
