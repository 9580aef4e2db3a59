// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemv.cuh"
#include "kernels/cuda/peer_device.cuh"
#include "kernels/cuda/skinny.h"

namespace tandem::kernels {
namespace {

/// Adds sums to the residual; for the norm that is left to the next matmul, keeps each block's
/// share of the squares of its rows and, but in half precision (`kGemvScalesResults`), the residual
/// times the norm's weight.
template <typename E>
struct AddNormEpilogue {
  E* residual;
  std::int64_t residual_stride;
  const float* bias;
  float scale;
  float* square_sums;  ///< [m, blocks], or null.
  int m;
  const float* weight;  ///< Of that norm, or null.
  E* weighted;
  std::int64_t weighted_stride;
  float square = 0;  ///< Of this thread's sums.
  E loaded{};        ///< The residual that the next sum is added to.
  float added = 0;   ///< Its bias, scaled.
  float weighs = 0;  ///< Its weight.
  E* at = nullptr;   ///< Its place.
  E* weighted_at = nullptr;
  const float *bias_at = nullptr, *weight_at = nullptr;

  static constexpr bool kNorms = false;
  __device__ void before_wait(int column, int unit) {
    at = residual + column * residual_stride + unit;
    if (bias != nullptr) bias_at = bias + unit;
    if (weight == nullptr) return;
    weighted_at = weighted + column * weighted_stride + unit;
    weight_at = weight + unit;
    weighs = *weight_at;
  }
  __device__ void start() const {}
  __device__ void load_first(int, int) { load_residual(); }
  __device__ void load(int, int) {
    load_residual();
    if (weight_at != nullptr) weighs = *weight_at;
  }
  /// A thread's units come in steps of a tile.
  __device__ void operator()(int, int, float sum, float) {
    const E value = from_float<E>(to_float(loaded) + added + scale * sum);
    *at = value;
    square += to_float(value) * to_float(value);
    at += GemvRows::kUnits;
    if (bias_at != nullptr) bias_at += GemvRows::kUnits;
    if (weight_at == nullptr) return;
    *weighted_at = from_float<E>(to_float(value) * weighs);
    weighted_at += GemvRows::kUnits;
    weight_at += GemvRows::kUnits;
  }
  __device__ void finish(int column, int, int) {
    if (square_sums == nullptr) return;
#pragma unroll
    for (int mask = GemvRows::kUnits / 2; mask > 0; mask >>= 1)
      square += __shfl_xor_sync(0xffffffffu, square, mask);
    if (column < m && threadIdx.x % GemvRows::kUnits == 0)
      square_sums[column * gridDim.x + blockIdx.x] = square;
  }

 private:
  __device__ void load_residual() {
    loaded = *at;
    if (bias_at != nullptr) added = scale * *bias_at;
  }
};

/// The same of sums that are first added over ranks. Each goes to all ranks as it is made, beside
/// the number of this exchange in one 8-byte store (NCCL's low-latency protocol): while the block
/// multiplies its next tile they travel. `finish` adds what arrived, in rank order and in float. A
/// block waits for the same block of the other ranks only.
template <typename E>
struct ReduceAddNormEpilogue {
  AddNormEpilogue<E> add;
  PeerView peers;
  const std::byte* own;  ///< This rank's workspace.
  int hidden;
  std::uint64_t* pushed_at;  ///< Or null.
  std::uint32_t epoch;
  std::int64_t mine;  ///< This rank's part of the exchange's half of the peers' memory.

  static constexpr bool kNorms = false;
  __device__ void before_wait(int, int) const {}
  __device__ void load_first(int, int) const {}
  __device__ void load(int, int) const {}
  /// The epoch is the kernel's before: it can be read when that one is done.
  __device__ void start() {
    epoch = epoch_after(*const_cast<const volatile std::uint32_t*>(epoch_word()));
    mine = PeerLayout{peers.size}.sums(epoch & 1, peers.rank);
  }
  __device__ void operator()(int column, int unit, float sum, float) const {
    const std::uint64_t word =
        static_cast<std::uint64_t>(epoch) << 32 | static_cast<std::uint32_t>(__float_as_int(sum));
    const std::int64_t at = mine + (std::int64_t{column} * hidden + unit) * 8;
#pragma unroll
    for (int r = 0; r < kMaxPeers; ++r)  // constant indices: the addresses stay in registers
      if (r < peers.size)
        asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(peers.peers[r] + at), "l"(word)
                     : "memory");
  }
  __device__ void finish(int column, int begin, int end) {
    if (pushed_at != nullptr && blockIdx.x + threadIdx.x == 0) *pushed_at = global_timer_ns();
    SpinGuard guard(peers);
    const std::byte* from = own + PeerLayout{peers.size}.sums(epoch & 1, 0);
    if (column < add.m)
      for (int unit = begin + static_cast<int>(threadIdx.x) % GemvRows::kUnits; unit < end;
           unit += GemvRows::kUnits) {
        add.before_wait(column, unit);
        add.load(column, unit);
        add(column, unit, total(from + (std::int64_t{column} * hidden + unit) * 8, guard), 0);
      }
    add.finish(column, begin, end);
    __syncthreads();
    if (threadIdx.x == 0) *epoch_word() = epoch;
  }

 private:
  __device__ std::uint32_t* epoch_word() const { return peers.sums_epochs + blockIdx.x; }
  __device__ float total(const std::byte* at, SpinGuard& guard) const {
    std::uint64_t words[kMaxPeers];
    bool ready;
    do {
      ready = true;
#pragma unroll
      for (int r = 0; r < kMaxPeers; ++r)
        if (r < peers.size)
          asm volatile("ld.relaxed.sys.global.u64 %0, [%1];"
                       : "=l"(words[r])
                       : "l"(at + r * PeerLayout::sums_bytes())
                       : "memory");
#pragma unroll
      for (int r = 0; r < kMaxPeers; ++r)
        if (r < peers.size) ready = ready && words[r] >> 32 == epoch;
    } while (!ready && !guard.expired());
    float sum = 0;
#pragma unroll
    for (int r = 0; r < kMaxPeers; ++r)
      if (r < peers.size) sum += __int_as_float(static_cast<int>(words[r] & 0xffffffffu));
    return sum;
  }
};

/// What both kinds need, and a place for the norm that is left to the next op.
template <typename T>
AddNormEpilogue<cuda_t<T>> make_epilogue(Context<Cuda>& ctx, const AddNormArgs<T, Cuda>& args) {
  AddNormEpilogue<cuda_t<T>> epilogue{};
  epilogue.residual = to_cuda(args.residual.data);
  epilogue.residual_stride = args.residual.stride;
  epilogue.bias = args.bias;
  epilogue.scale = args.scale;
  epilogue.m = static_cast<int>(args.residual.rows);
  if (args.deferred == nullptr || args.next_norm.weight == nullptr) return epilogue;
  epilogue.square_sums = ctx.square_sums().data;
  constexpr bool kWeighs = kGemvScalesResults<cuda_t<T>>;
  if (kWeighs) {
    epilogue.weight = args.next_norm.weight;
    epilogue.weighted = to_cuda(args.normed.data);
    epilogue.weighted_stride = args.normed.stride;
  }
  *args.deferred = {args.residual,        args.normed,   args.next_norm,
                    epilogue.square_sums, ctx.num_sms(), kWeighs};
  return epilogue;
}

template <typename T>
bool can_add(const AddNormArgs<T, Cuda>& args) {
  return args.post_norm.weight == nullptr && args.residual.cols % 8 == 0 &&
         args.residual.stride % 8 == 0 && args.normed.stride % 8 == 0 &&
         aligned_to(args.residual.data, 16) && aligned_to(args.normed.data, 16);
}

/// The norm, if it was not left to the next op.
template <typename T>
void norm_now(Context<Cuda>& ctx, const AddNormArgs<T, Cuda>& args, bool deferred) {
  if (deferred || args.normed.data == nullptr) return;
  AddNormArgs<T, Cuda> norm_only = args;
  norm_only.branch = {};
  add_norm(ctx, norm_only);
}

}  // namespace

template <typename T>
bool gemv_add_norm(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const T* w,
                   TensorView<T, Cuda> scratch, const AddNormArgs<T, Cuda>& args) {
  if (!can_add(args)) return false;
  const DecodeKernel kernel = decode_kernel(ctx, matmul_shape(x, scratch), x.data, w, scratch.data);
  if (kernel == DecodeKernel::kLibrary) return false;
  if (kernel == DecodeKernel::kSkinny) {
    norm_now(ctx, args, skinny_add_norm(ctx, x, w, args));
    return true;
  }
  const auto epilogue = make_epilogue(ctx, args);
  launch_gemv<GemvRows>(ctx, gemv_args<T>(x, w, nullptr), args.residual.cols, epilogue);
  norm_now(ctx, args, epilogue.square_sums != nullptr);
  return true;
}

template <typename T>
DecodeKernel decode_reduce_kernel(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const T* w,
                                  TensorView<T, Cuda> scratch, const AddNormArgs<T, Cuda>& args) {
  const std::int64_t sums = args.residual.rows * args.residual.cols;
  if (!can_add(args) || ctx.num_sms() > kMaxSumsBlocks) return DecodeKernel::kLibrary;
  const MatmulShape shape = matmul_shape(x, scratch);
  if (sums <= PeerLayout::kSums && can_gemv(ctx, shape, x.data, w)) return DecodeKernel::kGemv;
  // Both count exchanges by blocks: all blocks take part in all of them.
  const bool same_blocks = skinny_blocks(ctx.num_sms()) == ctx.num_sms();
  return sums <= PeerLayout::kSums * 2 && same_blocks && can_skinny(ctx, shape, x.data, w)
             ? DecodeKernel::kSkinny
             : DecodeKernel::kLibrary;
}

template <typename T>
void decode_reduce_add_norm(Context<Cuda>& ctx, DecodeKernel kernel, const PeerView& peers,
                            TensorView<const T, Cuda> x, const T* w,
                            const AddNormArgs<T, Cuda>& args, std::uint64_t* pushed_at) {
  if (kernel == DecodeKernel::kSkinny)
    return norm_now(ctx, args, skinny_reduce_add_norm(ctx, peers, x, w, args, pushed_at));
  ReduceAddNormEpilogue<cuda_t<T>> epilogue{};
  epilogue.add = make_epilogue(ctx, args);
  epilogue.peers = peers;
  epilogue.own = peers.peers[peers.rank];
  epilogue.hidden = static_cast<int>(args.residual.cols);
  epilogue.pushed_at = pushed_at;
  launch_gemv<GemvRows>(ctx, gemv_args<T>(x, w, nullptr), args.residual.cols, epilogue);
  norm_now(ctx, args, epilogue.add.square_sums != nullptr);
}

#define TANDEM_INSTANTIATE(T)                                                                     \
  template bool gemv_add_norm(Context<Cuda>&, TensorView<const T, Cuda>, const T*,                \
                              TensorView<T, Cuda>, const AddNormArgs<T, Cuda>&);                  \
  template DecodeKernel decode_reduce_kernel(Context<Cuda>&, TensorView<const T, Cuda>, const T*, \
                                             TensorView<T, Cuda>, const AddNormArgs<T, Cuda>&);   \
  template void decode_reduce_add_norm(Context<Cuda>&, DecodeKernel, const PeerView&,             \
                                       TensorView<const T, Cuda>, const T*,                       \
                                       const AddNormArgs<T, Cuda>&, std::uint64_t*);
TANDEM_INSTANTIATE(BFloat16)
TANDEM_INSTANTIATE(Float16)
#undef TANDEM_INSTANTIATE

}  // namespace tandem::kernels
