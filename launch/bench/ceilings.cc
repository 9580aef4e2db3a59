// SPDX-License-Identifier: Apache-2.0
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "kernels/cpu/vec.h"
#include "kernels/device/cpu/context.h"
#include "kernels/linear.h"
#include "launch/bench/results.h"

namespace tandem::launch {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Sums memory far larger than the caches and of the kind that weights lie in; best of several
/// passes.
double read_gb_per_s(int threads) {
  using kernels::cpu::Floats;
  // Enough sums that no addition waits for the one before it.
  constexpr int kSums = 8;
  constexpr std::int64_t kSizeBytes = std::int64_t{256} << 20;
  constexpr std::int64_t kStep = kSums * kernels::cpu::kFloats;
  constexpr auto kSteps = kSizeBytes / static_cast<std::int64_t>(sizeof(float)) / kStep;
  PageArena arena;
  const auto memory = arena.take(kSizeBytes);
  std::memset(memory.get(), 0, kSizeBytes);
  const float* data = reinterpret_cast<const float*>(memory.get());
  double best = 0;
  volatile float sink = 0;
  for (int pass = 0; pass < 5; ++pass) {
    const auto start = Clock::now();
    float sum = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    {
      Floats sums[kSums] = {};
#pragma omp for
      for (std::int64_t step = 0; step < kSteps; ++step)
        for (int i = 0; i < kSums; ++i)
          sums[i] += kernels::cpu::load<Floats>(data + step * kStep + i * kernels::cpu::kFloats);
      for (const Floats& part : sums) sum += kernels::cpu::sum(part);
    }
    sink = sum;
    best = std::max(best, static_cast<double>(kSizeBytes) / seconds_since(start) / 1e9);
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
