// SPDX-License-Identifier: Apache-2.0
// The all-reduce with everything that follows a row-parallel matmul: bias, post-norm, residual
// add, next norm. A cluster of blocks holds a row in registers from the sum to the last store.
#include <cooperative_groups.h>

#include "kernels/cuda/all_reduce_kernel.cuh"
#include "kernels/cuda/load_floats.cuh"

namespace tandem::kernels {
namespace {

constexpr int kPacksPerThread = 2;  // As `row_grid` promises.

/// Sums over all threads of a cluster without a barrier, with equal bits in all of them: every warp
/// stores its sum beside the number of the call, in 8 bytes, into the shared memory of every block,
/// and each warp polls that of its own block (the push protocol, between SMs). Two sets of slots
/// alternate: whoever stores for call k + 2 has read call k + 1 of everybody, so all have read call
/// k. A block ends after it heard of all warps, so nobody stores into a block that is gone.
struct ClusterSum {
  static constexpr int kSlots = 128;  ///< 8 blocks of 16 warps.
  std::uint64_t slots[2][kSlots];

  /// By all threads, with a cluster barrier between it and the first `sum`.
  __device__ void clear() {
    for (int i = static_cast<int>(threadIdx.x); i < 2 * kSlots; i += static_cast<int>(blockDim.x))
      slots[i / kSlots][i % kSlots] = 0;
  }

  __device__ float sum(float value, std::uint32_t call) {
    auto cluster = cooperative_groups::this_cluster();
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int warps = static_cast<int>(blockDim.x) / 32;
    const int blocks = static_cast<int>(cluster.num_blocks());
    value = warp_sum(value);
    std::uint64_t* set = slots[call & 1];
    if (lane < blocks) {
      std::uint64_t* mine = &set[static_cast<int>(cluster.block_rank()) * warps + warp];
      *static_cast<volatile std::uint64_t*>(cluster.map_shared_rank(mine, lane)) =
          std::uint64_t{call} << 32 | __float_as_uint(value);
    }
    float total = 0.0f;
    for (int slot = lane; slot < blocks * warps; slot += 32) {
      std::uint64_t word;
      do word = *static_cast<const volatile std::uint64_t*>(&set[slot]);
      while (static_cast<std::uint32_t>(word >> 32) != call);
      total += __uint_as_float(static_cast<std::uint32_t>(word));
    }
    return warp_sum(total);
  }

 private:
  static __device__ float warp_sum(float value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
      value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
  }
};

__device__ __forceinline__ void prefetch_line(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

template <typename E>
struct AddNormEpilogue {
  static constexpr int kSize = Pack<E>::kSize;
  /// Of one thread. The weights of its columns are the same for all rows.
  struct State {
    ClusterSum* cluster = nullptr;
    std::uint32_t calls = 0;
    float next_weight[kPacksPerThread][kSize] = {};
  };

  const float *bias = nullptr, *post_weight = nullptr, *next_weight = nullptr;
  float post_eps = 0, next_eps = 0, scale = 1;
  E* residual = nullptr;
  E* normed = nullptr;
  std::int64_t residual_stride = 0, normed_stride = 0;
  std::int32_t hidden = 0;

  /// Weights are constants: they may be read before the grid dependency wait.
  __device__ void begin(const BlockPart& part, State& state) const {
    __shared__ ClusterSum cluster;
    state.cluster = &cluster;
    cluster.clear();
    cooperative_groups::this_cluster().barrier_arrive();
    for_packs(part, [&](int k, std::int32_t, std::int32_t column) {
      load_weights(next_weight, column, state.next_weight[k]);
      if (bias != nullptr) prefetch_line(bias + column);
      if (post_weight != nullptr) prefetch_line(post_weight + column);
    });
  }
  /// The slots of all blocks are clear behind it.
  __device__ void join(State&) const { cooperative_groups::this_cluster().barrier_wait(); }

  /// Calls body(k, w, column) for this thread's packs of a row.
  template <typename Body>
  __device__ void for_packs(const BlockPart& part, const Body& body) const {
#pragma unroll
    for (int k = 0; k < kPacksPerThread; ++k) {
      const std::int32_t w = static_cast<std::int32_t>(threadIdx.x + k * blockDim.x);
      if (w < part.width) body(k, w, (part.column + w) * kSize);
    }
  }
  /// Ones where there are no weights.
  static __device__ void load_weights(const float* weight, std::int32_t column,
                                      float (&to)[kSize]) {
    if (weight != nullptr) return load_floats<kSize>(weight + column, to);
#pragma unroll
    for (int i = 0; i < kSize; ++i) to[i] = 1.0f;
  }

  /// 1 / rms of the row of which this thread holds `x`.
  __device__ float inverse_rms(const float (&x)[kPacksPerThread][kSize], float eps,
                               State& state) const {
    float squares = 0.0f;
#pragma unroll
    for (int k = 0; k < kPacksPerThread; ++k)
#pragma unroll
      for (int i = 0; i < kSize; ++i) squares += x[k][i] * x[k][i];
    const float sum = state.cluster->sum(squares, ++state.calls);
    return 1.0f / sqrtf(sum / static_cast<float>(hidden) + eps);
  }

  template <typename Fetch>
  __device__ void row(const BlockPart& part, std::int32_t row, std::int64_t, State& state,
                      const Fetch& fetch) const {
    float x[kPacksPerThread][kSize] = {};  // Zeros beyond the row: they add nothing to a norm.
    Pack<E> old[kPacksPerThread];
    E* residual_row = residual + row * residual_stride;
    for_packs(part, [&](int k, std::int32_t, std::int32_t column) {
      old[k] = load_pack(residual_row + column);  // In flight while the peers are polled.
    });
    for_packs(part, [&](int k, std::int32_t w, std::int32_t column) {
      const Pack<E> branch = fetch(w);
#pragma unroll
      for (int i = 0; i < kSize; ++i)
        x[k][i] = to_float(branch.values[i]) + (bias == nullptr ? 0.0f : bias[column + i]);
    });
    if (post_weight != nullptr) {
      const float inverse = inverse_rms(x, post_eps, state);
      for_packs(part, [&](int k, std::int32_t, std::int32_t column) {
        float weight[kSize];
        load_weights(post_weight, column, weight);
#pragma unroll
        for (int i = 0; i < kSize; ++i) x[k][i] *= inverse * weight[i];
      });
    }
    for_packs(part, [&](int k, std::int32_t, std::int32_t column) {
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
    for_packs(part, [&](int k, std::int32_t, std::int32_t column) {
      Pack<E> out;
#pragma unroll
      for (int i = 0; i < kSize; ++i)
        out.values[i] = from_float<E>(x[k][i] * inverse * state.next_weight[k][i]);
      store_pack(normed + row * normed_stride + column, out);
    });
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
  return fits(algorithm,
              row_grid(partial.rows, partial.cols / kSize, view.max_blocks, view.row_blocks));
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
  message.grid =
      row_grid(partial.rows, partial.cols / Pack<E>::kSize, view.max_blocks, view.row_blocks);
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
