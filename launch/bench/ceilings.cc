// SPDX-License-Identifier: Apache-2.0
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "kernels/device/cpu/context.h"
#include "kernels/linear.h"
#include "launch/bench/results.h"

namespace tandem::launch {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Sums a buffer far larger than the caches; best of several passes.
double read_gb_per_s(int threads) {
  constexpr std::int64_t kFloats = std::int64_t{64} << 20;
  Buffer<float, Cpu> data(kFloats);
  std::memset(data.data(), 0, static_cast<std::size_t>(data.size_bytes()));
  double best = 0;
  volatile float sink = 0;
  for (int pass = 0; pass < 5; ++pass) {
    const auto start = Clock::now();
    float sum = 0;
#pragma omp parallel for simd num_threads(threads) reduction(+ : sum)
    for (std::int64_t i = 0; i < kFloats; ++i) sum += data.data()[i];
    sink = sum;
    best = std::max(best, static_cast<double>(data.size_bytes()) / seconds_since(start) / 1e9);
  }
  static_cast<void>(sink);
  return best;
}

double matmul_tflops(int threads) {
  constexpr std::int64_t kSize = 1024;
  Context<Cpu> ctx(threads);
  Buffer<BFloat16, Cpu> weight(kSize * kSize), x(kSize * kSize), y(kSize * kSize);
  for (std::int64_t i = 0; i < kSize * kSize; ++i) {
    x.data()[i] = BFloat16(static_cast<float>(i % 13) - 6.0f);
    weight.data()[i] = BFloat16(static_cast<float>(i % 11) - 5.0f);
  }
  const kernels::LinearWeight<BFloat16, Cpu> w(ctx, std::move(weight), kSize, kSize);
  const TensorView<const BFloat16, Cpu> input(x.data(), kSize, kSize);
  double best = 0;
  for (int pass = 0; pass < 4; ++pass) {
    const auto start = Clock::now();
    kernels::matmul<BFloat16, BFloat16>(ctx, input, w, y.view(kSize, kSize));
    best = std::max(best, 2.0 * kSize * kSize * kSize / seconds_since(start) / 1e12);
  }
  return best;
}

}  // namespace

Ceilings gpu_ceilings(const std::string& gpu) {
  // Measured on one H200 SXM, CUDA 13.0, driver 580: a read-only kernel over 8 GiB, and a bf16
  // matmul of 8192^3 on random data through cuBLASLt.
  if (gpu == "NVIDIA H200") return {4546, 790};
  return {};
}

Ceilings measure_cpu_ceilings(int threads) {
  return {read_gb_per_s(threads), matmul_tflops(threads)};
}

}  // namespace tandem::launch
