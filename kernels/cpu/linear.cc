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
#include "kernels/device/cpu/context.h"

namespace tandem::kernels {
namespace {

/// oneDNN has no float16 on CPUs; that type takes the plain loops.
struct NoMatmul {};

}  // namespace

template <typename T>
struct LinearWeight<T, Cpu>::Library {
  std::conditional_t<std::is_same_v<T, Float16>, NoMatmul, cpu::OneDnnMatmul<T>> matmul;
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
  const auto memory = ctx.arena().take(static_cast<std::size_t>(size_bytes_));
  data_ = std::shared_ptr<T>(memory, reinterpret_cast<T*>(memory.get()));
  if constexpr (kPacked)
    cpu::pack(shape, row_major.data(), data_.get());
  else
    std::copy_n(row_major.data(), rows * cols, data_.get());
}

template <typename T>
void LinearWeight<T, Cpu>::copy_row(std::int64_t row, T* out) const {
  if constexpr (std::is_same_v<T, BFloat16>) {
    const cpu::PackedShape shape{rows_, cols_};
    for (std::int64_t col = 0; col < cols_; ++col) out[col] = data_.get()[shape.at(row, col)];
  } else {
    std::copy_n(data_.get() + row * cols_, cols_, out);
  }
}

template <typename T>
template <typename Out>
void LinearWeight<T, Cpu>::multiply(TensorView<const T, Cpu> x, TensorView<Out, Cpu> y) const {
  if constexpr (std::is_same_v<T, BFloat16>)
    if (x.rows <= cpu::kMaxDotRows && cpu::has_bf16_dot())
      return cpu::bf16_dot_matmul(cpu::PackedShape{rows_, cols_}, data_.get(), x, y);
  if constexpr (!std::is_same_v<T, Float16>)
    if (x.rows > 1 && library_->matmul.multiply(x, data_.get(), y)) return;
  if constexpr (std::is_same_v<T, BFloat16>)
    cpu::packed_matmul(cpu::PackedShape{rows_, cols_}, data_.get(), x, y);
  else
    cpu::plain_matmul(x, data_.get(), rows_, y);
}

template <typename T, typename Out>
void matmul(Context<Cpu>&, TensorView<const T, Cpu> x, const LinearWeight<T, Cpu>& w,
            TensorView<Out, Cpu> y) {
  TANDEM_ASSERT(x.cols == w.cols() && y.cols >= w.rows() && y.rows >= x.rows, "[", x.rows, ",",
                x.cols, "] x [", w.rows(), ",", w.cols(), "]^T -> [", y.rows, ",", y.cols, "]");
  if (x.rows == 0) return;
  TensorView<Out, Cpu> out = y;
  out.rows = x.rows;
  out.cols = w.rows();
  w.multiply(x, out);
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
