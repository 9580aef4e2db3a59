// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/qkv_epilogue.cuh"
#include "kernels/cuda/skinny_launch.cuh"

namespace tandem::kernels {
namespace {

constexpr int kMaxJobs = 2;  // of a thread, with 64 columns

/// Bias, rotary embedding and append, or q: eight elements of a head and their rotary partners.
template <typename E>
struct SkinnyQkv {
  QkvEpilogue<E> e;
  FastDivisor half;  ///< Of a head: elements.
  int position;      ///< Of the token of this thread.
  E* cached;         ///< Its place in the cache, of the first key head.
  Vec<float, 8> cos[kMaxJobs], sin[kMaxJobs];

  /// The step's rows are complete before the first layer starts.
  __device__ void before_wait(int token) {
    position = e.positions[token];
    if (position >= 0) cached = e.cached(token, position);
  }
  __device__ void load(int i, int, int at) {
    if (turns(half.divide(at))) {
      cos[i] = load_vec<float, 8>(e.cos + angle(at));
      sin[i] = load_vec<float, 8>(e.sin + angle(at));
      return;
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      cos[i].at[j] = 1.0f;
      sin[i].at[j] = 0.0f;
    }
  }
  __device__ void operator()(int i, int token, int at, const float (&low)[8],
                             const float (&high)[8]) const {
    const int head = half.divide(at), first = at - head * half.by;
    const bool is_q = head < e.num_q_heads;
    if (position < 0 && !is_q) return;
    Vec<E, 8> lows, highs;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float x = low[j], y = high[j];
      if (e.bias != nullptr) {
        x += e.bias[head * e.head_dim + first + j];
        y += e.bias[head * e.head_dim + first + j + half.by];
      }
      lows.at[j] = from_float<E>(position < 0 ? 0.0f : x * cos[i].at[j] - y * sin[i].at[j]);
      highs.at[j] = from_float<E>(position < 0 ? 0.0f : y * cos[i].at[j] + x * sin[i].at[j]);
    }
    E* to = is_q ? e.q + token * e.q_stride + head * e.head_dim
                 : cached + (head - e.num_q_heads) * e.plane();
    store_vec(to + first, lows);
    store_vec(to + first + half.by, highs);
  }
  __device__ void finish(int, const SkinnyArgs&, float*) const {}

 private:
  __device__ bool turns(int head) const {
    return e.cos != nullptr && head < e.num_q_heads + e.num_kv_heads && position >= 0;
  }
  __device__ std::int64_t angle(int at) const {
    return std::int64_t{position} * half.by + (at - half.divide(at) * half.by);
  }
};

}  // namespace

template <typename T>
void skinny_qkv(Context<Cuda>& ctx, const QkvArgs<T, Cuda>& args) {
  const SkinnyQkv<cuda_t<T>> epilogue{make_qkv_epilogue(args), FastDivisor(args.kv.head_dim / 2)};
  launch_skinny(ctx, args.x, args.weight->data(), args.weight->rows() / SkinnyHalves::kBoxRows,
                args.deferred, true, epilogue, SkinnyHalves{FastDivisor(args.kv.head_dim / 16)});
}

template void skinny_qkv(Context<Cuda>&, const QkvArgs<BFloat16, Cuda>&);
template void skinny_qkv(Context<Cuda>&, const QkvArgs<Float16, Cuda>&);

}  // namespace tandem::kernels
