// SPDX-License-Identifier: Apache-2.0
#include "kernels/embed.h"

#include "kernels/cuda/load_floats.cuh"
#include "kernels/cuda/numeric.cuh"

namespace tandem::kernels {
namespace {

constexpr int kMaxThreads = 1024;

template <typename E>
struct EmbedParams {
  const std::int32_t* token_ids;
  const std::int32_t* positions;
  const E* table;
  std::int64_t vocab_begin, vocab_end;
  E *out, *normed, *zeros;  ///< The last two or null.
  std::int64_t out_stride, normed_stride, zeros_stride;
  const float* norm_weight;  ///< Null: `normed` is a copy.
  float scale, eps;
  int hidden;

  /// Whether all of it can be read and written `elements` (16 bytes of E) at a time.
  bool wide(int elements) const {
    return hidden % elements == 0 && out_stride % elements == 0 && normed_stride % elements == 0 &&
           zeros_stride % elements == 0 && aligned_to(table, 16) && aligned_to(out, 16) &&
           aligned_to(normed, 16) && aligned_to(zeros, 16) && aligned_to(norm_weight, 16);
  }
};

/// One block per row; the row stays in registers, kItems vectors of N elements per thread. The norm
/// has the bits of `add_norm`'s: the same threads add up the same squares.
template <typename E, int N, int kItems>
__global__ void __launch_bounds__(kMaxThreads) embed_kernel(const EmbedParams<E> p) {
  __shared__ float scratch[32];
  constexpr bool kEarlyWeights = kItems <= 2;  // registers for them
  float weight[kEarlyWeights ? kItems : 1][N];
  const auto load_weight = [&](int at, float(&to)[N]) {
#pragma unroll
    for (float& one : to) one = 1.0f;
    if (p.norm_weight != nullptr && at < p.hidden) load_floats<N>(p.norm_weight + at, to);
  };
  if constexpr (kEarlyWeights) {
#pragma unroll
    for (int k = 0; k < kItems; ++k) load_weight((k * blockDim.x + threadIdx.x) * N, weight[k]);
  }
  pdl_wait();
  pdl_trigger();
  const std::int64_t row = blockIdx.x, token = p.token_ids[row];
  const bool here = p.positions[row] >= 0 && token >= p.vocab_begin && token < p.vocab_end;
  const E* from = p.table + (here ? token - p.vocab_begin : 0) * p.hidden;
  Vec<E, N> v[kItems];
  float square = 0;
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const int at = (k * blockDim.x + threadIdx.x) * N;
    v[k] = {};
    if (at >= p.hidden) continue;
    if (here) v[k] = load_vec<E, N>(from + at);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      v[k].at[j] = from_float<E>(p.scale * to_float(v[k].at[j]));
      square += to_float(v[k].at[j]) * to_float(v[k].at[j]);
    }
    store_vec(p.out + row * p.out_stride + at, v[k]);
    if (p.zeros != nullptr) store_vec(p.zeros + row * p.zeros_stride + at, Vec<E, N>{});
  }
  if (p.normed == nullptr) return;
  float factor = 1.0f;
  if (p.norm_weight != nullptr) factor = rsqrtf(block_sum(square, scratch) / p.hidden + p.eps);
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const int at = (k * blockDim.x + threadIdx.x) * N;
    if (at >= p.hidden) continue;
    float(&w)[N] = weight[kEarlyWeights ? k : 0];
    if constexpr (!kEarlyWeights) load_weight(at, w);
#pragma unroll
    for (int j = 0; j < N; ++j) v[k].at[j] = from_float<E>(to_float(v[k].at[j]) * factor * w[j]);
    store_vec(p.normed + row * p.normed_stride + at, v[k]);
  }
}

template <typename E, int N>
void launch_embed(Context<Cuda>& ctx, std::int64_t rows, const EmbedParams<E>& params) {
  const int vectors = (params.hidden + N - 1) / N;
  const int threads = vectors >= kMaxThreads ? kMaxThreads : (vectors + 31) / 32 * 32;
  const int items = (vectors + threads - 1) / threads;
  TANDEM_ASSERT(items <= 8, "hidden size ", params.hidden);
  // Not a dependent launch: so every later kernel of the step starts when the step's row arrays and
  // all earlier steps are complete, and may read those before its own wait.
  launch(ctx, {dim3(rows), dim3(threads)},
         items <= 1   ? embed_kernel<E, N, 1>
         : items <= 2 ? embed_kernel<E, N, 2>
                      : embed_kernel<E, N, 8>,
         params);
}

}  // namespace

template <typename T>
void embed(Context<Cuda>& ctx, const EmbedArgs<T, Cuda>& args) {
  using E = cuda_t<T>;
  constexpr int kN = kVecElements<E>;
  if (args.out.rows == 0) return;
  EmbedParams<E> params{};
  params.token_ids = args.step->token_ids;
  params.positions = args.step->positions;
  params.table = to_cuda(args.table);
  params.vocab_begin = args.vocab_begin;
  params.vocab_end = args.vocab_end;
  params.out = to_cuda(args.out.data);
  params.out_stride = args.out.stride;
  params.normed = to_cuda(args.normed.data);
  params.normed_stride = args.normed.stride;
  params.zeros = to_cuda(args.zeros.data);
  params.zeros_stride = args.zeros.stride;
  params.norm_weight = args.norm.weight;
  params.eps = args.norm.eps;
  params.scale = args.scale;
  params.hidden = static_cast<int>(args.out.cols);
  if (params.wide(kN))
    launch_embed<E, kN>(ctx, args.out.rows, params);
  else
    launch_embed<E, 1>(ctx, args.out.rows, params);
}

template void embed<float>(Context<Cuda>&, const EmbedArgs<float, Cuda>&);
template void embed<BFloat16>(Context<Cuda>&, const EmbedArgs<BFloat16, Cuda>&);
template void embed<Float16>(Context<Cuda>&, const EmbedArgs<Float16, Cuda>&);

}  // namespace tandem::kernels
