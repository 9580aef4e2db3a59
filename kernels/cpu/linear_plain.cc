// SPDX-License-Identifier: Apache-2.0
// Matmul where oneDNN is not found: plain loops with float accumulation.
#include "kernels/cpu/plain_matmul.h"
#include "kernels/device/cpu/context.h"
#include "kernels/linear.h"

namespace tandem::kernels {

template <typename T>
struct LinearWeight<T, Cpu>::Packed {};

template <typename T>
LinearWeight<T, Cpu>::LinearWeight(Context<Cpu>&, Buffer<T, Cpu> row_major, std::int64_t rows,
                                   std::int64_t cols)
    : rows_(rows), cols_(cols), row_major_(std::move(row_major)) {}

template <typename T, typename Out>
void matmul(Context<Cpu>&, TensorView<const T, Cpu> x, const LinearWeight<T, Cpu>& w,
            TensorView<Out, Cpu> y) {
  cpu::plain_matmul(x, w.row_major(), w.rows(), y);
}

#include "kernels/cpu/linear_instances.inl"

}  // namespace tandem::kernels
