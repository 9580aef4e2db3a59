// SPDX-License-Identifier: Apache-2.0
// A consumer warpgroup: 64 query rows against all key tiles of a piece of work. Two overlaps of
// FlashAttention-3 (arXiv 2407.08608, section 3) hide the softmax under the tensor cores:
//  - inside a warpgroup S of the next tile is issued before O += P V of the current one, and its
//    softmax runs while that product is in flight;
//  - between warpgroups the turn to issue is passed on by named barriers, so that one computes its
//    softmax while the other's products run (ping-pong).
// Barriers are released per warp after the product that read the buffer is complete.
#pragma once

#include "kernels/cuda/attend_prefill_epilogue.cuh"

namespace tandem::kernels::prefill {

/// Named barriers; 0 is __syncthreads.
inline constexpr int kTurnBarrier = 1;  ///< One per consumer.
inline constexpr int kTailBarrier = kTurnBarrier + kConsumers;

template <typename E, int kHeadDim, bool kCount, bool kSplit>
class Consumer {
 public:
  using Bytes = TileBytes<kHeadDim>;

  __device__ __forceinline__ Consumer(const Params& params, SharedMemory<kHeadDim>& shared,
                                      int index)
      : params_(params),
        shared_(shared),
        index_(index),
        warp_(index * 4 + static_cast<int>(threadIdx.x % kWarpgroup) / kWarp),
        q_(k_major_descriptor(shared_address(shared.q) + index * 64 * Bytes::kRowBytes)),
        k_(k_major_descriptor(shared_address(shared.k[0]))),
        v_(mn_major_descriptor(shared_address(shared.v[0]), Bytes::kKeysHalf)) {}

  __device__ __forceinline__ void run() {
    const long long begin = kCount ? clock64() : 0;
    if (index_ == kConsumers - 1) named_arrive(kTurnBarrier, 2 * kWarpgroup);
    for (;;) {
      wait(&shared_.barriers.q_full, q_parity_, waits_.query);
      q_parity_ ^= 1u;
      const Work work = shared_.work;
      if (work.valid == 0) break;
      attend(work);
    }
    if constexpr (kCount) report(static_cast<unsigned long long>(clock64() - begin));
  }

 private:
  __device__ __forceinline__ void attend(const Work& work) {
    float o[kHeadDim / 2];
#pragma unroll
    for (float& value : o) value = 0.0f;
    SoftmaxState softmax{{kMinusInfinity, kMinusInfinity}, {0.0f, 0.0f}};
    if (work.tile_end > work.tile_begin)
      walk_keys(work, o, softmax);
    else
      release(&shared_.barriers.q_empty);
    if constexpr (kSplit)
      write_partial<kHeadDim>(params_, work, warp_, o, softmax);
    else
      write_output<E, kHeadDim>(params_, work, warp_, o, softmax.sum,
                                shared_.out + warp_ * kWarpRows * kHeadDim * 2);
  }

  __device__ __forceinline__ void walk_keys(const Work& work, float (&o)[kHeadDim / 2],
                                            SoftmaxState& softmax) {
    const int group_position = work.position + 64 * index_;
    const int lane = threadIdx.x % kWarp;
    // Relative to a tile's first key, for this thread's first row and first column.
    const int own = group_position + (warp_ % 4) * kWarpRows + lane / 4 - 2 * (lane % 4);
    const int window = params_.window > 0 ? params_.window : 1 << 30;
    // Tiles in [full_begin, full_end) are visible to all rows of the warpgroup.
    const int full_end = (group_position + 1) / kKeys;
    const int full_begin = (max(0, group_position + 64 - window) + kKeys - 1) / kKeys;

    float s[64];
    std::uint32_t p[32];
    float correction[2];
    int n = work.tile_end - 1;
    wait(&shared_.barriers.k_full[position_k_.stage], position_k_.parity, waits_.key);
    issue_scores(s);
    wgmma_wait<0>();
    pin_registers(s);
    release(&shared_.barriers.k_empty[position_k_.stage]);
    position_k_.advance();
    mask_scores(s, own - window - n * kKeys, own - n * kKeys);
    online_softmax<true, true>(s, softmax, params_.scale_log2, correction);
    pack_weights<E>(s, p);
    if (work.kv_tokens < work.tile_end * kKeys) zero_tail(work.kv_tokens - n * kKeys);

    const auto masked = [&] {
      mask_scores(s, own - window - n * kKeys, own - n * kKeys);
      online_softmax<false, true>(s, softmax, params_.scale_log2, correction);
    };
    --n;
    for (; n >= max(work.tile_begin, full_end); --n) step(s, p, o, correction, masked);
    for (; n >= max(work.tile_begin, full_begin); --n)
      step(s, p, o, correction,
           [&] { online_softmax<false, false>(s, softmax, params_.scale_log2, correction); });
    for (; n >= work.tile_begin; --n) step(s, p, o, correction, masked);

    release(&shared_.barriers.q_empty);
    wait(&shared_.barriers.v_full[position_v_.stage], position_v_.parity, waits_.value);
    issue_values(p, o);
    wgmma_wait<0>();
    pin_registers(o);
    release(&shared_.barriers.v_empty[position_v_.stage]);
    position_v_.advance();
  }

  /// S of one more tile, and O += P V of the tile before it.
  template <typename Softmax>
  __device__ __forceinline__ void step(float (&s)[64], std::uint32_t (&p)[32],
                                       float (&o)[kHeadDim / 2], const float (&correction)[2],
                                       Softmax&& softmax) {
    wait(&shared_.barriers.k_full[position_k_.stage], position_k_.parity, waits_.key);
    // Where waits are counted, none may hide in the other warpgroup's wait for its turn.
    if constexpr (kCount)
      wait(&shared_.barriers.v_full[position_v_.stage], position_v_.parity, waits_.value);
    named_sync(kTurnBarrier + index_, 2 * kWarpgroup);
    issue_scores(s);
    wait(&shared_.barriers.v_full[position_v_.stage], position_v_.parity, waits_.value);
    issue_values(p, o);
    named_arrive(kTurnBarrier + (index_ + 1) % kConsumers, 2 * kWarpgroup);
    wgmma_wait<1>();
    pin_registers(s);
    release(&shared_.barriers.k_empty[position_k_.stage]);
    position_k_.advance();
    softmax();
    wgmma_wait<0>();
    pin_registers(o);
    pin_registers(p);
    release(&shared_.barriers.v_empty[position_v_.stage]);
    position_v_.advance();
    scale_rows(o, correction);
    pack_weights<E>(s, p);
  }

  /// s = Q K^T of the current K stage; one committed group.
  __device__ __forceinline__ void issue_scores(float (&s)[64]) {
    const std::uint64_t k = k_ + position_k_.stage * (Bytes::kKeyTile >> 4);
    pin_registers(s);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kHeadDim / 16; ++step) {
      const int half = step / 4, offset = step % 4 * 32;
      wgmma_qk<E>(s, q_ + ((half * Bytes::kQueryHalf + offset) >> 4),
                  k + ((half * Bytes::kKeysHalf + offset) >> 4), step > 0);
    }
    wgmma_commit();
  }

  /// o += P V of the current V stage; one committed group.
  __device__ __forceinline__ void issue_values(std::uint32_t (&p)[32], float (&o)[kHeadDim / 2]) {
    const std::uint64_t v = v_ + position_v_.stage * (Bytes::kKeyTile >> 4);
    pin_registers(o);
    pin_registers(p);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step)
      wgmma_pv<E>(o, p[4 * step], p[4 * step + 1], p[4 * step + 2], p[4 * step + 3],
                  v + ((step * 16 * Bytes::kRowBytes) >> 4));
    wgmma_commit();
  }

  /// Zeroes rows `begin` and later of the current V stage: 0 weight x NaN of an earlier request, or
  /// of a chunk that was not loaded, would be NaN.
  __device__ __forceinline__ void zero_tail(int begin) {
    constexpr int kUnits = Bytes::kRowBytes / 16, kAllThreads = kConsumers * kWarpgroup;
    wait(&shared_.barriers.v_full[position_v_.stage], position_v_.parity, waits_.value);
    std::uint8_t* tile = shared_.v[position_v_.stage];
    const int thread = static_cast<int>(threadIdx.x) - kWarpgroup;
    for (int half = 0; half < Bytes::kHalves; ++half)
      for (int unit = begin * kUnits + thread; unit < kKeys * kUnits; unit += kAllThreads)
        *reinterpret_cast<uint4*>(tile + half * Bytes::kKeysHalf + unit * 16) = uint4{0, 0, 0, 0};
    fence_async_shared();
    named_sync(kTailBarrier, kAllThreads);
  }

  __device__ __forceinline__ void wait(std::uint64_t* barrier, std::uint32_t parity,
                                       unsigned long long& waited) {
    if constexpr (kCount) {
      const long long begin = clock64();
      barrier_wait(barrier, parity);
      waited += static_cast<unsigned long long>(clock64() - begin);
    } else {
      barrier_wait(barrier, parity);
    }
  }

  /// One arrival per warp.
  __device__ __forceinline__ void release(std::uint64_t* barrier) {
    __syncwarp();
    if (threadIdx.x % kWarp == 0) barrier_arrive(barrier);
  }

  __device__ __forceinline__ void report(unsigned long long total) {
    if (threadIdx.x % kWarpgroup != 0) return;
    atomicAdd(&params_.waits->total, total);
    atomicAdd(&params_.waits->query, waits_.query);
    atomicAdd(&params_.waits->key, waits_.key);
    atomicAdd(&params_.waits->value, waits_.value);
  }

  const Params& params_;
  SharedMemory<kHeadDim>& shared_;
  int index_, warp_;
  std::uint64_t q_, k_, v_;
  std::uint32_t q_parity_ = 0;
  RingPosition<Bytes::kStages> position_k_, position_v_;
  WaitCycles waits_{};
};

}  // namespace tandem::kernels::prefill
