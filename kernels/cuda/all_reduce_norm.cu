// SPDX-License-Identifier: Apache-2.0
// The all-reduce with everything that follows a row-parallel matmul: bias, post-norm, residual
// add, next norm. A cluster of blocks holds a row in registers from the sum to the last store.
#include <cooperative_groups.h>

#include "kernels/cuda/all_reduce_kernel.cuh"

namespace tandem::kernels {
namespace {

constexpr int kPacksPerThread = 2;  // As `row_grid` promises.
constexpr int kMaxWarps = 16;

/// Sum of `value` over all threads of the cluster, equal bits in all of them. Two sets of shared
/// memory alternate: whoever writes set k again has passed the barrier of set k + 1, so all have
/// read set k.
__device__ float cluster_sum(float value, int& turn) {
  __shared__ float warps[2][kMaxWarps];
  __shared__ float block[2];
  turn ^= 1;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, offset);
  if (threadIdx.x % 32 == 0) warps[turn][threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0.0f;
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) sum += warps[turn][warp];
  auto cluster = cooperative_groups::this_cluster();
  const unsigned blocks = cluster.num_blocks();
  if (blocks == 1) return sum;
  if (threadIdx.x == 0) block[turn] = sum;
  cluster.sync();
  float total = 0.0f;
  for (unsigned b = 0; b < blocks; ++b) total += *cluster.map_shared_rank(&block[turn], b);
  return total;
}

__device__ __forceinline__ void prefetch_line(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

template <typename E>
struct AddNormEpilogue {
  struct State {
    int turn = 0;
  };
  static constexpr int kSize = Pack<E>::kSize;

  const float *bias = nullptr, *post_weight = nullptr, *next_weight = nullptr;
  float post_eps = 0, next_eps = 0, scale = 1;
  E* residual = nullptr;
  E* normed = nullptr;
  std::int64_t residual_stride = 0, normed_stride = 0;
  std::int32_t hidden = 0;

  /// Weights are constants: they may be brought near before the grid dependency wait.
  __device__ void prefetch() const {
    const std::int32_t line = 32 * static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
    if (line >= hidden) return;
    if (bias != nullptr) prefetch_line(bias + line);
    if (post_weight != nullptr) prefetch_line(post_weight + line);
    if (next_weight != nullptr) prefetch_line(next_weight + line);
  }

  /// Blocks leave together: another one may still be reading our shared memory.
  __device__ void finish() const {
    auto cluster = cooperative_groups::this_cluster();
    if (cluster.num_blocks() > 1) cluster.sync();
  }

  /// 1 / rms of the row of which this thread holds `x`.
  __device__ float inverse_rms(const float (&x)[kPacksPerThread][kSize], float eps,
                               State& state) const {
    float squares = 0.0f;
#pragma unroll
    for (int k = 0; k < kPacksPerThread; ++k)
#pragma unroll
      for (int i = 0; i < kSize; ++i) squares += x[k][i] * x[k][i];
    return 1.0f / sqrtf(cluster_sum(squares, state.turn) / static_cast<float>(hidden) + eps);
  }

  template <typename Fetch>
  __device__ void row(const BlockPart& part, std::int32_t row, std::int64_t, State& state,
                      const Fetch& fetch) const {
    float x[kPacksPerThread][kSize] = {};  // Zeros beyond the row: they add nothing to a norm.
    Pack<E> old[kPacksPerThread];
    E* residual_row = residual + row * residual_stride;
    const auto for_packs = [&](auto body) {
#pragma unroll
      for (int k = 0; k < kPacksPerThread; ++k) {
        const std::int32_t w = static_cast<std::int32_t>(threadIdx.x + k * blockDim.x);
        if (w < part.width) body(k, w, (part.column + w) * kSize);
      }
    };
    for_packs([&](int k, std::int32_t, std::int32_t column) {
      old[k] = load_pack(residual_row + column);  // In flight while the peers are polled.
    });
    for_packs([&](int k, std::int32_t w, std::int32_t column) {
      const Pack<E> branch = fetch(w);
#pragma unroll
      for (int i = 0; i < kSize; ++i)
        x[k][i] = to_float(branch.values[i]) + (bias == nullptr ? 0.0f : bias[column + i]);
    });
    if (post_weight != nullptr) {
      const float inverse = inverse_rms(x, post_eps, state);
      for_packs([&](int k, std::int32_t, std::int32_t column) {
#pragma unroll
        for (int i = 0; i < kSize; ++i) x[k][i] *= inverse * post_weight[column + i];
      });
    }
    for_packs([&](int k, std::int32_t, std::int32_t column) {
      Pack<E> fresh;
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        fresh.values[i] = from_float<E>(to_float(old[k].values[i]) + scale * x[k][i]);
        x[k][i] = to_float(fresh.values[i]);
      }
      store_pack(residual_row + column, fresh);
    });
    if (normed != nullptr) store_normed(part, row, x, state);
  }

  __device__ void store_normed(const BlockPart& part, std::int32_t row,
                               const float (&x)[kPacksPerThread][kSize], State& state) const {
    const float inverse = next_weight == nullptr ? 1.0f : inverse_rms(x, next_eps, state);
#pragma unroll
    for (int k = 0; k < kPacksPerThread; ++k) {
      const std::int32_t w = static_cast<std::int32_t>(threadIdx.x + k * blockDim.x);
      if (w >= part.width) continue;
      const std::int32_t column = (part.column + w) * kSize;
      Pack<E> out;
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        const float weight = next_weight == nullptr ? 1.0f : next_weight[column + i];
        out.values[i] = from_float<E>(x[k][i] * inverse * weight);
      }
      store_pack(normed + row * normed_stride + column, out);
    }
  }
};

bool aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

}  // namespace

template <typename T>
bool can_reduce_add_norm(const PeerView& view, PeerAlgorithm algorithm, TensorView<T, Cuda> partial,
                         const AddNormArgs<T, Cuda>& args) {
  constexpr std::int64_t kSize = Pack<cuda_t<T>>::kSize;
  if (partial.cols % kSize != 0 || partial.stride != partial.cols) return false;
  if (!aligned(partial.data) || !aligned(args.residual.data) || !aligned(args.normed.data) ||
      args.residual.stride % kSize != 0 || args.normed.stride % kSize != 0)
    return false;
  return fits(algorithm, row_grid(partial.rows, partial.cols / kSize, view.max_blocks));
}

template <typename T>
void peer_reduce_add_norm(Context<Cuda>& ctx, Stream<Cuda>& stream, const PeerView& view,
                          PeerAlgorithm algorithm, TensorView<T, Cuda> partial,
                          const AddNormArgs<T, Cuda>& args) {
  using E = cuda_t<T>;
  if (partial.rows == 0) return;
  PeerMessage<E> message;
  message.in = to_cuda(partial.data);
  message.elements = partial.rows * partial.cols;
  message.grid = row_grid(partial.rows, partial.cols / Pack<E>::kSize, view.max_blocks);
  AddNormEpilogue<E> epilogue;
  epilogue.bias = args.bias;
  epilogue.post_weight = args.post_norm.weight;
  epilogue.post_eps = args.post_norm.eps;
  epilogue.next_weight = args.next_norm.weight;
  epilogue.next_eps = args.next_norm.eps;
  epilogue.scale = args.scale;
  epilogue.residual = to_cuda(args.residual.data);
  epilogue.residual_stride = args.residual.stride;
  epilogue.normed = to_cuda(args.normed.data);
  epilogue.normed_stride = args.normed.stride;
  epilogue.hidden = static_cast<std::int32_t>(partial.cols);
  launch_all_reduce(ctx, stream, algorithm, view, message, epilogue);
}

template bool can_reduce_add_norm(const PeerView&, PeerAlgorithm, TensorView<float, Cuda>,
                                  const AddNormArgs<float, Cuda>&);
template bool can_reduce_add_norm(const PeerView&, PeerAlgorithm, TensorView<BFloat16, Cuda>,
                                  const AddNormArgs<BFloat16, Cuda>&);
template bool can_reduce_add_norm(const PeerView&, PeerAlgorithm, TensorView<Float16, Cuda>,
                                  const AddNormArgs<Float16, Cuda>&);
template void peer_reduce_add_norm(Context<Cuda>&, Stream<Cuda>&, const PeerView&, PeerAlgorithm,
                                   TensorView<float, Cuda>, const AddNormArgs<float, Cuda>&);
template void peer_reduce_add_norm(Context<Cuda>&, Stream<Cuda>&, const PeerView&, PeerAlgorithm,
                                   TensorView<BFloat16, Cuda>, const AddNormArgs<BFloat16, Cuda>&);
template void peer_reduce_add_norm(Context<Cuda>&, Stream<Cuda>&, const PeerView&, PeerAlgorithm,
                                   TensorView<Float16, Cuda>, const AddNormArgs<Float16, Cuda>&);

}  // namespace tandem::kernels
