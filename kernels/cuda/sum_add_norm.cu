// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sum_add_norm.h"

#include "kernels/cuda/load_floats.cuh"
#include "kernels/cuda/norm_params.cuh"

namespace tandem::kernels {
namespace {

constexpr int kMaxThreads = 512;
constexpr int kMaxPacksPerThread = 4;

template <typename E>
struct SumAddNormParams : NormParams<E> {
  const E* parts[kMaxPeers];
  int size;
};

/// The summed branch of a pack, with its bias.
template <typename E, int N>
__device__ __forceinline__ void load_sum(const SumAddNormParams<E>& p, std::int64_t row, int at,
                                         float (&x)[N]) {
#pragma unroll
  for (int r = 0; r < kMaxPeers; ++r) {
    if (r >= p.size) break;
    const Pack<E> part = load_pack(p.parts[r] + row * p.hidden + at);
#pragma unroll
    for (int j = 0; j < N; ++j)
      x[j] = r == 0 ? to_float(part.values[j]) : x[j] + to_float(part.values[j]);
  }
  float bias[N] = {};
  if (p.bias != nullptr) load_floats<N>(p.bias + at, bias);
#pragma unroll
  for (int j = 0; j < N; ++j) x[j] = to_float(from_float<E>(x[j])) + bias[j];
}

/// One block per row; the row stays in registers, kItems packs per thread.
template <typename E, int kItems>
__global__ void __launch_bounds__(kMaxThreads)
    sum_add_norm_kernel(const __grid_constant__ SumAddNormParams<E> p) {
  constexpr int kN = Pack<E>::kSize;
  __shared__ float scratch[32];
  const std::int64_t row = blockIdx.x;
  E* residual = p.residual + row * p.residual_stride;
  float x[kItems][kN];
  Pack<E> old[kItems];
  const auto for_packs = [&](auto body) {
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const int at = static_cast<int>(k * blockDim.x + threadIdx.x) * kN;
      if (at < p.hidden) body(k, at);
    }
  };
  for_packs([&](int k, int at) { old[k] = load_pack(residual + at); });
  float square = 0.0f;
  for_packs([&](int k, int at) {
    load_sum(p, row, at, x[k]);
#pragma unroll
    for (int j = 0; j < kN; ++j) square += x[k][j] * x[k][j];
  });
  if (p.post_weight != nullptr) {
    const float factor = rsqrtf(block_sum(square, scratch) / p.hidden + p.post_eps);
    for_packs([&](int k, int at) {
      float weight[kN];
      load_floats<kN>(p.post_weight + at, weight);
#pragma unroll
      for (int j = 0; j < kN; ++j) x[k][j] *= factor * weight[j];
    });
  }
  square = 0.0f;
  for_packs([&](int k, int at) {
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      old[k].values[j] = from_float<E>(to_float(old[k].values[j]) + p.scale * x[k][j]);
      x[k][j] = to_float(old[k].values[j]);
      square += x[k][j] * x[k][j];
    }
    store_pack(residual + at, old[k]);
  });
  float factor = 1.0f;
  if (p.next_weight != nullptr) factor = rsqrtf(block_sum(square, scratch) / p.hidden + p.next_eps);
  for_packs([&](int k, int at) {
    float weight[kN];
#pragma unroll
    for (float& one : weight) one = 1.0f;
    if (p.next_weight != nullptr) load_floats<kN>(p.next_weight + at, weight);
    Pack<E> out;
#pragma unroll
    for (int j = 0; j < kN; ++j) out.values[j] = from_float<E>(x[k][j] * factor * weight[j]);
    store_pack(p.normed + row * p.normed_stride + at, out);
  });
}

}  // namespace

template <typename T>
bool can_sum_add_norm(const AddNormArgs<T, Cuda>& args) {
  constexpr int kN = Pack<cuda_t<T>>::kSize;
  return norm_params(args).wide(kN) && args.normed.data != nullptr &&
         args.residual.cols <= kN * kMaxThreads * kMaxPacksPerThread;
}

template <typename T>
void sum_add_norm(Context<Cuda>& ctx, Stream<Cuda>& stream, const SumParts<T>& parts,
                  const AddNormArgs<T, Cuda>& args) {
  using E = cuda_t<T>;
  TANDEM_ASSERT(can_sum_add_norm(args), "rows of ", args.residual.cols);
  if (args.residual.rows == 0) return;
  SumAddNormParams<E> params{norm_params(args), {}, 0};
  for (int r = 0; r < parts.size; ++r) params.parts[r] = to_cuda(parts.parts[r]);
  params.size = parts.size;
  const int packs = params.hidden / Pack<E>::kSize;
  const int threads = packs >= kMaxThreads ? kMaxThreads : (packs + 31) / 32 * 32;
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(args.residual.rows));
  shape.block = dim3(static_cast<unsigned>(threads));
  const int items = (packs + threads - 1) / threads;
  const auto kernel = items <= 1   ? sum_add_norm_kernel<E, 1>
                      : items <= 2 ? sum_add_norm_kernel<E, 2>
                                   : sum_add_norm_kernel<E, kMaxPacksPerThread>;
  launch_on(ctx, stream, shape, kernel, params);
}

#define TANDEM_INSTANTIATE(T)                                                      \
  template bool can_sum_add_norm<T>(const AddNormArgs<T, Cuda>&);                  \
  template void sum_add_norm<T>(Context<Cuda>&, Stream<Cuda>&, const SumParts<T>&, \
                                const AddNormArgs<T, Cuda>&);
TANDEM_INSTANTIATE(float)
TANDEM_INSTANTIATE(BFloat16)
TANDEM_INSTANTIATE(Float16)
#undef TANDEM_INSTANTIATE

}  // namespace tandem::kernels
