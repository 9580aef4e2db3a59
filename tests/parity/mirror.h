// SPDX-License-Identifier: Apache-2.0
// The same array on the host and on the GPU, for tests that run an op on both devices: `Mirror`
// starts with equal contents, `expect_close` compares what the two ops made of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/linear_cublaslt.h"
#include "kernels/device/cpu/context.h"
#include "kernels/linear.h"
#include "parity/gpu.h"

namespace tandem::testing {

template <typename V>
struct Mirror {
  std::vector<V> host;
  Buffer<V, Cuda> device;

  Mirror() = default;
  Mirror(Context<Cuda>& ctx, std::vector<V> values)
      : host(std::move(values)), device(upload(ctx, host)) {}

  template <Device D>
  V* on() {
    if constexpr (std::same_as<D, Cpu>) {
      return host.data();
    } else {
      return device.data();
    }
  }
  template <Device D>
  TensorView<V, D> view(std::int64_t rows, std::int64_t cols, std::int64_t stride = 0) {
    TensorView<V, D> view(on<D>(), rows, cols);
    if (stride > 0) view.stride = stride;
    return view;
  }
  template <Device D>
  TensorView<const V, D> cview(std::int64_t rows, std::int64_t cols, std::int64_t stride = 0) {
    TensorView<const V, D> view(on<D>(), rows, cols);
    if (stride > 0) view.stride = stride;
    return view;
  }
};

/// Draws from a normal distribution; every seed is another sequence.
template <typename V>
std::vector<V> normal(std::int64_t size, float deviation, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution(0.0f, deviation);
  std::vector<V> values;
  values.reserve(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) values.push_back(V(distribution(generator)));
  return values;
}

/// Bits that are NaN in every element type: an op must overwrite them.
template <typename V>
std::vector<V> poison(std::int64_t size) {
  std::vector<V> values(static_cast<std::size_t>(size));
  std::memset(static_cast<void*>(values.data()), 0xff, values.size() * sizeof(V));
  return values;
}

/// Largest difference of two results of one op relative to 1 + |value|: roundings to T happen at
/// most twice more on one device than on the other.
template <typename T>
inline constexpr float kTolerance = std::is_same_v<T, float>      ? 3e-5f
                                    : std::is_same_v<T, BFloat16> ? 1.6e-2f
                                                                  : 2e-3f;

/// Elements [0, size) of `mirror` after both ops ran; names the first differences. NaN equals NaN.
template <typename V>
void expect_close(Context<Cuda>& ctx, Mirror<V>& mirror, float tolerance, const std::string& what) {
  const auto size = static_cast<std::int64_t>(mirror.host.size());
  const std::vector<V> device = download(ctx, mirror.device.data(), size);
  int wrong = 0;
  for (std::size_t i = 0; i < device.size(); ++i) {
    const auto want = static_cast<float>(mirror.host[i]), got = static_cast<float>(device[i]);
    if (std::isnan(want) && std::isnan(got)) continue;
    if (want == got || std::fabs(want - got) <= tolerance * (1.0f + std::fabs(want))) continue;
    if (++wrong <= 5)
      ADD_FAILURE() << what << ": element " << i << " is " << got << " on the GPU, " << want
                    << " on the CPU";
  }
  EXPECT_EQ(wrong, 0) << what << ": " << wrong << " of " << size << " differ";
}

template <typename V>
void expect_equal(Context<Cuda>& ctx, Mirror<V>& mirror, const std::string& what) {
  expect_close(ctx, mirror, 0.0f, what);
}

/// One weight in both devices' forms.
template <typename T>
struct MirrorWeight {
  kernels::LinearWeight<T, Cpu> cpu;
  kernels::LinearWeight<T, Cuda> cuda;

  MirrorWeight(Context<Cpu>& host, Context<Cuda>& ctx, std::int64_t rows, std::int64_t cols,
               unsigned seed) {
    const auto values = normal<T>(rows * cols, 1.0f / std::sqrt(static_cast<float>(cols)), seed);
    Buffer<T, Cpu> copy(rows * cols);
    std::copy(values.begin(), values.end(), copy.data());
    cpu = kernels::LinearWeight<T, Cpu>(host, std::move(copy), rows, cols);
    cuda = kernels::LinearWeight<T, Cuda>(ctx, upload(ctx, values), rows, cols);
  }
  template <Device D>
  const kernels::LinearWeight<T, D>& on() const {
    if constexpr (std::same_as<D, Cpu>) {
      return cpu;
    } else {
      return cuda;
    }
  }
};

/// A context of each device, made once per test program: GPU start-up is slow.
struct Devices {
  Context<Cpu> cpu{2};
  Context<Cuda> cuda{options(DecodeMatmul::kStreaming)};
  /// Never destroyed: at exit the CUDA runtime may be gone before us.
  static Devices& get() {
    static Devices* devices = new Devices;
    return *devices;
  }
  /// Calls `run` with the GPU's context, or with one that takes the other of our kernels for few
  /// rows. Nothing orders what is enqueued on the two: what was before is complete, and so is
  /// `run`.
  template <typename Run>
  void on_cuda(const Run& run, bool skinny) {
    if (!skinny) return run(cuda);
    static auto* other = new Context<Cuda>(options(DecodeMatmul::kSkinny));
    other->cublaslt().set_tuning(false);
    cuda.compute().synchronize();
    run(*other);
    other->compute().synchronize();
  }

 private:
  static CudaOptions options(DecodeMatmul decode_matmul) {
    CudaOptions options;
    options.decode_matmul = decode_matmul;  // cuBLASLt has its own tests
    return options;
  }
  Devices() { cuda.cublaslt().set_tuning(false); }
};

/// Calls `test.operator()<T>()` for the three element types.
template <typename Test>
void for_each_type(const Test& test) {
  test.template operator()<float>();
  test.template operator()<BFloat16>();
  test.template operator()<Float16>();
}

}  // namespace tandem::testing
