// SPDX-License-Identifier: Apache-2.0
// y = x W^T by dot products over rows of a row-major weight: the reference, and the fast way for
// few rows, where reading the weight once is all the work.
#pragma once

#include <algorithm>

#include "kernels/device/buffer.h"

namespace tandem::kernels::cpu {

template <typename T>
float dot(const T* a, const T* b, std::int64_t size) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < size; ++i)
    sum += static_cast<float>(a[i]) * static_cast<float>(b[i]);
  return sum;
}

/// x `[M, K]`, w `[N, K]`, y `[M, N]`. Rows of w are dealt to the threads.
template <typename T, typename Out>
void plain_matmul(TensorView<const T, Cpu> x, const T* w, std::int64_t n, TensorView<Out, Cpu> y) {
#pragma omp parallel for
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t i = 0; i < x.rows; ++i)
      y.row(i)[j] = Out(dot(x.row(i), w + j * x.cols, x.cols));
}

}  // namespace tandem::kernels::cpu
