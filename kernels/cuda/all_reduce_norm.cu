// SPDX-License-Identifier: Apache-2.0
// The all-reduce with everything that follows a row-parallel matmul: bias, post-norm, residual
// add, next norm. A cluster of blocks holds a row in registers from the sum to the last store.
#include "kernels/cuda/all_reduce_kernel.cuh"
#include "kernels/cuda/load_floats.cuh"
#include "kernels/cuda/row_sum.cuh"

namespace tandem::kernels {
namespace {

__device__ __forceinline__ void prefetch_line(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

/// kPacks: of a row, the most that a thread holds.
template <typename E, int kPacks>
struct AddNormEpilogue {
  static constexpr int kSize = Pack<E>::kSize;
  static constexpr int kPacksPerThread = kPacks;
  static constexpr bool kWholePacks = true;
  /// Of one thread. The weights of its columns are the same for all rows.
  struct State {
    RowSum* row_sum = nullptr;
    std::uint32_t calls = 0;
    float next_weight[kPacks][kSize] = {};
    Words old[kPacks];  ///< The residual's packs of the row.
  };

  const float *bias = nullptr, *post_weight = nullptr, *next_weight = nullptr;
  float post_eps = 0, next_eps = 0, scale = 1;
  E* residual = nullptr;
  E* normed = nullptr;
  std::int64_t residual_stride = 0, normed_stride = 0;
  float inverse_hidden = 0;
  std::int32_t cluster = 1;  ///< Blocks.

  /// Weights are constants: they may be read before the grid dependency wait.
  __device__ void begin(const BlockPart& part, State& state) const {
    __shared__ RowSum row_sum;
    state.row_sum = &row_sum;
    row_sum.begin(cluster);
    for_packs(part, [&](int k, std::int32_t, std::int32_t column) {
      load_weights(next_weight, column, state.next_weight[k]);
      if (bias != nullptr) prefetch_line(bias + column);
      if (post_weight != nullptr) prefetch_line(post_weight + column);
    });
  }
  __device__ void join(State& state) const { state.row_sum->join(cluster); }

  /// Calls body(k, w, column) for this thread's packs of a row.
  template <typename Body>
  __device__ void for_packs(const BlockPart& part, const Body& body) const {
    for_row_packs<kPacks>(part,
                          [&](int k, std::int32_t w) { body(k, w, (part.column + w) * kSize); });
  }
  /// Ones where there are no weights.
  static __device__ void load_weights(const float* weight, std::int32_t column,
                                      float (&to)[kSize]) {
    if (weight != nullptr) return load_floats<kSize>(weight + column, to);
#pragma unroll
    for (int i = 0; i < kSize; ++i) to[i] = 1.0f;
  }

  /// 1 / rms of the row of which this thread holds `x`.
  __device__ float inverse_rms(const float (&x)[kPacks][kSize], float eps, State& state) const {
    float squares = 0.0f;
#pragma unroll
    for (int k = 0; k < kPacks; ++k)
#pragma unroll
      for (int i = 0; i < kSize; ++i) squares += x[k][i] * x[k][i];
    return rsqrtf(state.row_sum->sum(squares, state.calls++, cluster) * inverse_hidden + eps);
  }

  __device__ void load(const BlockPart& part, std::int32_t row, State& state) const {
    for_packs(part, [&](int k, std::int32_t, std::int32_t column) {
      state.old[k] = load_whole(residual + row * residual_stride + column);
    });
  }

  template <typename Fetch>
  __device__ void row(const BlockPart& part, std::int32_t row, std::int64_t, State& state,
                      const Fetch& fetch) const {
    float x[kPacks][kSize] = {};  // Zeros beyond the row: they add nothing to a norm.
    for_packs(part, [&](int k, std::int32_t w, std::int32_t column) {
      const Pack<E> branch = fetch(k, w);
      float added[kSize] = {};
      if (bias != nullptr) load_floats<kSize>(bias + column, added);
#pragma unroll
      for (int i = 0; i < kSize; ++i) x[k][i] = to_float(branch.values[i]) + added[i];
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
      const Pack<E> old = to_pack<E>(state.old[k]);
#pragma unroll
      for (int i = 0; i < kSize; ++i) x[k][i] = to_float(old.values[i]) + scale * x[k][i];
      const Pack<E> fresh = round_pack<E>(x[k]);
#pragma unroll
      for (int i = 0; i < kSize; ++i) x[k][i] = to_float(fresh.values[i]);
      store_pack(residual + row * residual_stride + column, fresh);
    });
    if (normed != nullptr) store_normed(part, row, x, state);
  }

  __device__ void store_normed(const BlockPart& part, std::int32_t row,
                               const float (&x)[kPacks][kSize], State& state) const {
    const float inverse = next_weight == nullptr ? 1.0f : inverse_rms(x, next_eps, state);
    for_packs(part, [&](int k, std::int32_t, std::int32_t column) {
      float out[kSize];
#pragma unroll
      for (int i = 0; i < kSize; ++i) out[i] = x[k][i] * inverse * state.next_weight[k][i];
      store_pack(normed + row * normed_stride + column, round_pack<E>(out));
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

namespace {

template <int kPacks, typename T>
void launch_add_norm(Context<Cuda>& ctx, Stream<Cuda>& stream, const PeerView& view,
                     PeerAlgorithm algorithm, const PeerMessage<cuda_t<T>>& message,
                     const AddNormArgs<T, Cuda>& args) {
  AddNormEpilogue<cuda_t<T>, kPacks> epilogue;
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
  epilogue.inverse_hidden = 1.0f / static_cast<float>(args.residual.cols);
  epilogue.cluster = message.grid.cluster;
  launch_all_reduce(ctx, stream, algorithm, view, message, epilogue);
}

}  // namespace

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
  if (message.grid.row_packs / message.grid.cluster <= message.grid.threads)
    launch_add_norm<1>(ctx, stream, view, algorithm, message, args);
  else  // as `row_grid` promises
    launch_add_norm<2>(ctx, stream, view, algorithm, message, args);
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
