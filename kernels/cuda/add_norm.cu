// SPDX-License-Identifier: Apache-2.0
#include "kernels/add_norm.h"

#include "kernels/cuda/gemv.h"
#include "kernels/cuda/linear_cublaslt.h"
#include "kernels/cuda/load_floats.cuh"
#include "kernels/cuda/norm_params.cuh"

namespace tandem::kernels {
namespace {

constexpr int kMaxThreads = 1024;

template <typename E>
struct AddNormParams : NormParams<E> {
  const E* branch;
  std::int64_t branch_stride;
};

/// One block per row; the row stays in registers, kItems vectors of N elements per thread.
template <typename E, int N, int kItems>
__global__ void __launch_bounds__(kMaxThreads) add_norm_kernel(AddNormParams<E> p) {
  __shared__ float scratch[32];
  pdl_wait();
  pdl_trigger();
  const std::int64_t row = blockIdx.x;
  float x[kItems][N];
  float square = 0;
  if (p.branch != nullptr) {
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const int at = (k * blockDim.x + threadIdx.x) * N;
      if (at >= p.hidden) continue;
      const auto v = load_vec<E, N>(p.branch + row * p.branch_stride + at);
      float bias[N] = {};
      if (p.bias != nullptr) load_floats<N>(p.bias + at, bias);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        x[k][j] = to_float(v.at[j]) + bias[j];
        square += x[k][j] * x[k][j];
      }
    }
    if (p.post_weight != nullptr) {
      const float factor = rsqrtf(block_sum(square, scratch) / p.hidden + p.post_eps);
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        const int at = (k * blockDim.x + threadIdx.x) * N;
        if (at >= p.hidden) continue;
        float weight[N];
        load_floats<N>(p.post_weight + at, weight);
#pragma unroll
        for (int j = 0; j < N; ++j) x[k][j] *= factor * weight[j];
      }
    }
  }
  square = 0;
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const int at = (k * blockDim.x + threadIdx.x) * N;
    if (at >= p.hidden) continue;
    E* address = p.residual + row * p.residual_stride + at;
    auto v = load_vec<E, N>(address);
    if (p.branch != nullptr) {
#pragma unroll
      for (int j = 0; j < N; ++j) v.at[j] = from_float<E>(to_float(v.at[j]) + p.scale * x[k][j]);
      store_vec(address, v);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) {
      x[k][j] = to_float(v.at[j]);
      square += x[k][j] * x[k][j];
    }
  }
  if (p.normed == nullptr) return;
  float factor = 1.0f;
  if (p.next_weight != nullptr) factor = rsqrtf(block_sum(square, scratch) / p.hidden + p.next_eps);
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const int at = (k * blockDim.x + threadIdx.x) * N;
    if (at >= p.hidden) continue;
    float weight[N];
#pragma unroll
    for (float& one : weight) one = 1.0f;
    if (p.next_weight != nullptr) load_floats<N>(p.next_weight + at, weight);
    Vec<E, N> v;
#pragma unroll
    for (int j = 0; j < N; ++j) v.at[j] = from_float<E>(x[k][j] * factor * weight[j]);
    store_vec(p.normed + row * p.normed_stride + at, v);
  }
}

template <typename E, int N>
void launch_add_norm(Context<Cuda>& ctx, std::int64_t rows, const AddNormParams<E>& params) {
  const int vectors = (params.hidden + N - 1) / N;
  const int threads = vectors >= kMaxThreads ? kMaxThreads : (vectors + 31) / 32 * 32;
  const int items = (vectors + threads - 1) / threads;
  TANDEM_ASSERT(items <= 8, "hidden size ", params.hidden);
  const auto kernel = items <= 1   ? add_norm_kernel<E, N, 1>
                      : items <= 2 ? add_norm_kernel<E, N, 2>
                                   : add_norm_kernel<E, N, 8>;
  launch(ctx, dependent(dim3(rows), dim3(threads)), kernel, params);
}

}  // namespace

template <typename T>
void add_norm(Context<Cuda>& ctx, const AddNormArgs<T, Cuda>& args) {
  using E = cuda_t<T>;
  constexpr int kN = kVecElements<E>;
  if (args.residual.rows == 0) return;
  AddNormParams<E> params{norm_params(args), nullptr, 0};
  params.branch = args.branch.rows > 0 ? to_cuda(args.branch.data) : nullptr;
  params.branch_stride = args.branch.stride;
  const bool wide =
      params.wide(kN) && params.branch_stride % kN == 0 && aligned_to(params.branch, 16);
  if (wide)
    launch_add_norm<E, kN>(ctx, args.residual.rows, params);
  else
    launch_add_norm<E, 1>(ctx, args.residual.rows, params);
}

template <typename T>
void project_add_norm(Context<Cuda>& ctx, TensorView<const T, Cuda> x,
                      const LinearWeight<T, Cuda>& w, TensorView<T, Cuda> scratch,
                      const AddNormArgs<T, Cuda>& args) {
  if (args.deferred != nullptr) args.deferred->parts = 0;
  if constexpr (sizeof(T) == 2)
    if (gemv_add_norm(ctx, x, w.data(), scratch, args)) return;
  // Prefill, and nothing between the product and the sum: the matmul adds it to the residual while
  // it stores (one rounding less, 4 bytes an element less to move), and only the norm is left.
  constexpr std::int64_t kDecodeRows = 64;
  if (x.rows > kDecodeRows && args.bias == nullptr && args.post_norm.weight == nullptr) {
    add_matmul(ctx, x, w, args.scale, args.residual, scratch);
    AddNormArgs<T, Cuda> norm_only = args;
    norm_only.branch = {};
    add_norm(ctx, norm_only);
    return;
  }
  AddNormArgs<T, Cuda> with_branch = args;
  with_branch.branch = {scratch.data, scratch.rows, scratch.cols};
  with_branch.branch.stride = scratch.stride;
  matmul(ctx, x, w, scratch);
  add_norm(ctx, with_branch);
}

template <typename T>
void apply_deferred(Context<Cuda>& ctx, DeferredNorm<T, Cuda>* deferred) {
  if (deferred == nullptr || deferred->parts == 0) return;
  AddNormArgs<T, Cuda> args;
  args.residual = deferred->residual;
  args.next_norm = deferred->norm;
  args.normed = deferred->normed;
  add_norm(ctx, args);
  deferred->parts = 0;
}

#define TANDEM_INSTANTIATE(T)                                                          \
  template void apply_deferred<T>(Context<Cuda>&, DeferredNorm<T, Cuda>*);             \
  template void add_norm<T>(Context<Cuda>&, const AddNormArgs<T, Cuda>&);              \
  template void project_add_norm<T>(Context<Cuda>&, TensorView<const T, Cuda>,         \
                                    const LinearWeight<T, Cuda>&, TensorView<T, Cuda>, \
                                    const AddNormArgs<T, Cuda>&);
TANDEM_INSTANTIATE(float)
TANDEM_INSTANTIATE(BFloat16)
TANDEM_INSTANTIATE(Float16)
#undef TANDEM_INSTANTIATE

}  // namespace tandem::kernels
