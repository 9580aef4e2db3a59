// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/peer_device.cuh"
#include "kernels/cuda/skinny_launch.cuh"

namespace tandem::kernels {
namespace {

constexpr int kMaxJobs = 4;        // of a thread, with 64 columns
constexpr int kMaxReduceJobs = 2;  // with 32

/// Adds sums to the residual; for the norm that is left to the next matmul, keeps residual * weight
/// and each block's share of the squares of its rows.
template <typename E>
struct SkinnyAddNorm {
  E* residual;
  std::int64_t residual_stride;
  const float* bias;
  float scale;
  float* square_sums;  ///< [m, blocks], or null.
  const float* weight;
  E* weighted;
  std::int64_t weighted_stride;
  float square = 0;
  Vec<E, 8> loaded[kMaxJobs];
  Vec<float, 8> weights[kMaxJobs];

  __device__ void before_wait(int) const {}
  __device__ void load(int i, int column, int row) {
    loaded[i] = load_vec<E, 8>(residual + column * residual_stride + row);
    if (weight != nullptr) weights[i] = load_vec<float, 8>(weight + row);
  }
  __device__ void operator()(int i, int column, int row, const float (&sums)[8],
                             const float (&)[8]) {
    Vec<E, 8> values, products;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float branch = sums[j] + (bias == nullptr ? 0.0f : bias[row + j]);
      values.at[j] = from_float<E>(to_float(loaded[i].at[j]) + scale * branch);
      const float value = to_float(values.at[j]);
      square += value * value;
      if (weight != nullptr) products.at[j] = from_float<E>(value * weights[i].at[j]);
    }
    store_vec(residual + column * residual_stride + row, values);
    if (weight != nullptr) store_vec(weighted + column * weighted_stride + row, products);
  }
  /// `scratch`: a float of this column.
  __device__ void finish(int column, const SkinnyArgs& args, float* scratch) {
    if (square_sums == nullptr) return;
    const int threads = args.m <= 16 ? 8 : args.m <= 32 ? 4 : 2;  // of the column in a warpgroup
    for (int mask = threads / 2; mask > 0; mask >>= 1)
      square += __shfl_xor_sync(0xffffffffu, square, mask);
    const bool leads = column < args.m && threadIdx.x % threads == 0;
    skinny_sync_groups();  // all have read their sums
    if (leads && threadIdx.x >= 128) *scratch = square;
    skinny_sync_groups();
    if (leads && threadIdx.x < 128)
      square_sums[column * gridDim.x + blockIdx.x] = square + *scratch;
  }
};

/// The same of sums that are first added over ranks: rounded to E, each piece of eight goes to the
/// other ranks by the push protocol, and when all of a pass are on their way those that arrive are
/// added in rank order and in float. A block waits for the same block of the other ranks only.
template <typename E>
struct SkinnyReduceAddNorm {
  SkinnyAddNorm<E> add;
  SumsExchange exchange;
  int hidden;
  Pack<E> pushed[kMaxReduceJobs];

  __device__ void before_wait(int) const {}
  __device__ void start() { exchange.start(); }
  __device__ void load(int i, int column, int row) { add.load(i, column, row); }
  __device__ void operator()(int i, int column, int row, const float (&sums)[8],
                             const float (&)[8]) {
    const PeerView& peers = exchange.peers;
    pushed[i] = round_pack<E>(sums);
    const MarkedWords marked = mark_words(to_words(pushed[i]), exchange.epoch);
    const std::int64_t to = exchange.words_of(peers.rank) + at(column, row);
#pragma unroll
    for (int r = 0; r < kMaxPeers; ++r)  // constant indices: the addresses stay in registers
      if (r < peers.size && r != peers.rank) store_marked(peers.peers[r] + to, marked);
  }
  __device__ void complete(int i, int column, int row) {
    if (exchange.pushed_at != nullptr && i + blockIdx.x + threadIdx.x == 0)
      *exchange.pushed_at = global_timer_ns();
    SpinGuard guard(exchange.peers);
    const std::byte* from = exchange.own + exchange.words_of(0) + at(column, row);
    float sums[8];
    poll_words(
        exchange.peers, exchange.epoch, to_words(pushed[i]), guard,
        [&](int r) { return from + r * PeerLayout::sums_bytes(); },
        [&](int r, Words words) { accumulate(sums, to_pack<E>(words), r == 0); });
    add(i, column, row, sums, sums);
  }
  __device__ void finish(int column, const SkinnyArgs& args, float* scratch) {
    add.finish(column, args, scratch);
    skinny_sync_groups();  // all have read the epoch
    if (threadIdx.x == 0) exchange.finish();
  }

 private:
  /// Of eight sums of 2 bytes: 32 bytes.
  __device__ std::int64_t at(int column, int row) const {
    return (std::int64_t{column} * hidden + row) * 4;
  }
};

template <typename T>
bool can_defer(const AddNormArgs<T, Cuda>& args) {
  // A half-precision residual times a weight may overflow before the factor is applied.
  return args.deferred != nullptr && args.next_norm.weight != nullptr &&
         std::is_same_v<T, BFloat16>;
}

/// And a place for the norm that is left to the next op, if it is.
template <typename T>
SkinnyAddNorm<cuda_t<T>> make_epilogue(Context<Cuda>& ctx, const AddNormArgs<T, Cuda>& args) {
  SkinnyAddNorm<cuda_t<T>> epilogue{};
  epilogue.residual = to_cuda(args.residual.data);
  epilogue.residual_stride = args.residual.stride;
  epilogue.bias = args.bias;
  epilogue.scale = args.scale;
  if (!can_defer(args)) return epilogue;
  epilogue.square_sums = ctx.square_sums().data;
  epilogue.weight = args.next_norm.weight;
  epilogue.weighted = to_cuda(args.normed.data);
  epilogue.weighted_stride = args.normed.stride;
  *args.deferred = {args.residual,
                    args.normed,
                    args.next_norm,
                    epilogue.square_sums,
                    skinny_blocks(ctx.num_sms()),
                    true};
  return epilogue;
}

template <int kMostRows, typename T, typename Epilogue>
void launch_add_norm(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const T* w,
                     const AddNormArgs<T, Cuda>& args, const Epilogue& epilogue) {
  const std::int64_t boxes = args.residual.cols / SkinnyRows::kBoxRows;
  const bool is_down = x.cols > args.residual.cols;  // it has no attention beside it
  launch_skinny<T, SkinnyRows, kMostRows>(ctx, x, w, boxes, nullptr, !is_down, epilogue);
}

}  // namespace

template <typename T>
bool skinny_add_norm(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const T* w,
                     const AddNormArgs<T, Cuda>& args) {
  launch_add_norm<kSkinnyMaxRows>(ctx, x, w, args, make_epilogue(ctx, args));
  return can_defer(args);
}

template <typename T>
bool skinny_reduce_add_norm(Context<Cuda>& ctx, const PeerView& peers, TensorView<const T, Cuda> x,
                            const T* w, const AddNormArgs<T, Cuda>& args,
                            std::uint64_t* pushed_at) {
  SkinnyReduceAddNorm<cuda_t<T>> epilogue{};
  epilogue.add = make_epilogue(ctx, args);
  epilogue.exchange = {peers, pushed_at};
  epilogue.hidden = static_cast<int>(args.residual.cols);
  launch_add_norm<kSkinnyMaxReduceRows>(ctx, x, w, args, epilogue);
  return can_defer(args);
}

#define TANDEM_INSTANTIATE(T)                                                                      \
  template bool skinny_add_norm(Context<Cuda>&, TensorView<const T, Cuda>, const T*,               \
                                const AddNormArgs<T, Cuda>&);                                      \
  template bool skinny_reduce_add_norm(Context<Cuda>&, const PeerView&, TensorView<const T, Cuda>, \
                                       const T*, const AddNormArgs<T, Cuda>&, std::uint64_t*);
TANDEM_INSTANTIATE(BFloat16)
TANDEM_INSTANTIATE(Float16)
#undef TANDEM_INSTANTIATE

}  // namespace tandem::kernels
