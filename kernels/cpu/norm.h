// SPDX-License-Identifier: Apache-2.0
// RMS norm of one row, shared by the CPU ops. Reference arithmetic: float throughout.
#pragma once

#include <cmath>
#include <cstdint>

namespace tandem::kernels::cpu {

/// 1 / sqrt(mean(x^2) + eps)
inline float inverse_rms(const float* x, std::int64_t size, float eps) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < size; ++i) sum += x[i] * x[i];
  return 1.0f / std::sqrt(sum / static_cast<float>(size) + eps);
}

}  // namespace tandem::kernels::cpu
