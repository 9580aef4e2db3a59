// SPDX-License-Identifier: Apache-2.0
// What a streaming row-parallel matmul does with its sums: residual add and what the next norm
// needs, of one rank's sums or of the sums over ranks. Device code only.
#pragma once

#include "kernels/cuda/gemv.cuh"
#include "kernels/cuda/peer_device.cuh"

namespace tandem::kernels {

/// Adds sums to the residual; for the norm that is left to the next matmul, keeps each block's
/// share of the squares of its rows and, but in half precision (`kGemvScalesResults`), the residual
/// times the norm's weight.
template <typename E>
struct GemvAddNorm {
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
  static constexpr int kLate = 2;
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
struct GemvReduceAddNorm {
  GemvAddNorm<E> add;
  SumsExchange exchange;
  int hidden;
  std::int64_t mine;  ///< This rank's part of the exchange's half of the peers' memory.

  static constexpr bool kNorms = false;
  static constexpr int kLate = 2;
  __device__ void before_wait(int, int) const {}
  __device__ void load_first(int, int) const {}
  __device__ void load(int, int) const {}
  __device__ void start() {
    exchange.start();
    mine = exchange.words_of(exchange.peers.rank);
  }
  __device__ void operator()(int column, int unit, float sum, float) const {
    const PeerView& peers = exchange.peers;
    const std::uint64_t word = static_cast<std::uint64_t>(exchange.epoch) << 32 |
                               static_cast<std::uint32_t>(__float_as_int(sum));
    const std::int64_t at = mine + (std::int64_t{column} * hidden + unit) * 8;
#pragma unroll
    for (int r = 0; r < kMaxPeers; ++r)  // constant indices: the addresses stay in registers
      if (r < peers.size)
        asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(peers.peers[r] + at), "l"(word)
                     : "memory");
  }
  __device__ void finish(int column, int begin, int end) {
    if (exchange.pushed_at != nullptr && blockIdx.x + threadIdx.x == 0)
      *exchange.pushed_at = global_timer_ns();
    SpinGuard guard(exchange.peers);
    const std::byte* from = exchange.own + exchange.words_of(0);
    if (column < add.m)
      for (int unit = begin + static_cast<int>(threadIdx.x) % GemvRows::kUnits; unit < end;
           unit += kTogether * GemvRows::kUnits)
        complete(column, unit, end, from + (std::int64_t{column} * hidden + unit) * 8, guard);
    add.finish(column, begin, end);
    __syncthreads();
    if (threadIdx.x == 0) exchange.finish();
  }

 private:
  static constexpr int kTogether = 2;  ///< Tiles of a share: their words are under way together.

  /// This thread's units of some tiles, from `unit` on. `at`: the word of the first.
  __device__ __forceinline__ void complete(int column, int unit, int end, const std::byte* at,
                                           SpinGuard& guard) {
    constexpr int kStep = GemvRows::kUnits;
    const PeerView& peers = exchange.peers;
    GemvAddNorm<E> tiles[kTogether] = {add, add};
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      tiles[i].square = 0;
      if (unit + i * kStep >= end) continue;
      tiles[i].before_wait(column, unit + i * kStep);
      tiles[i].load(column, unit + i * kStep);
    }
    std::uint64_t words[kTogether][kMaxPeers];
    bool ready;
    do {
      ready = true;
#pragma unroll
      for (int i = 0; i < kTogether; ++i)
        if (unit + i * kStep < end) load_words_of_ranks(at + i * kStep * 8, words[i]);
#pragma unroll
      for (int i = 0; i < kTogether; ++i)
#pragma unroll
        for (int r = 0; r < kMaxPeers; ++r)
          if (r < peers.size && unit + i * kStep < end)
            ready = ready && words[i][r] >> 32 == exchange.epoch;
    } while (!ready && !guard.expired());
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (unit + i * kStep >= end) continue;
      float sum = 0;
#pragma unroll
      for (int r = 0; r < kMaxPeers; ++r)
        if (r < peers.size) sum += __int_as_float(static_cast<int>(words[i][r] & 0xffffffffu));
      tiles[i](column, unit + i * kStep, sum, 0);
      add.square += tiles[i].square;
    }
  }
  __device__ __forceinline__ void load_words_of_ranks(const std::byte* at,
                                                      std::uint64_t (&words)[kMaxPeers]) const {
#pragma unroll
    for (int r = 0; r < kMaxPeers; ++r)
      if (r < exchange.peers.size)
        asm volatile("ld.relaxed.sys.global.u64 %0, [%1];"
                     : "=l"(words[r])
                     : "l"(at + r * PeerLayout::sums_bytes())
                     : "memory");
  }
};

}  // namespace tandem::kernels
