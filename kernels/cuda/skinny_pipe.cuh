// SPDX-License-Identifier: Apache-2.0
// How W and x come through shared memory in a skinny matmul: who copies them, who multiplies them.
//
// Two rings, of stages of `subs` pieces of 64 elements of K: one of W, filled by this block for
// itself from before the PDL wait on, and one of x, to which every block of the cluster copies its
// part of the rows for all of them. Of a pass the warpgroups have 64 rows of W each; where it has
// not more than that, they take its stages in turn and their sums are added. A warpgroup hands a
// stage of W back to its own block, and a stage of x to all blocks of the cluster. In a stage
// groups of 8 rows lie `subs` KB apart, each as [sub][8 lines of 128 bytes]: one copy brings them
// all, and wgmma takes the distance as a stride.
#pragma once

#include "kernels/cuda/numeric.cuh"
#include "kernels/cuda/skinny.h"
#include "kernels/cuda/skinny_wgmma.cuh"
#include "kernels/cuda/tma.cuh"

namespace tandem::kernels {

inline constexpr int kSkinnyPitch = kSkinnyGroupRows + 4;             // floats: no banks collide
inline constexpr int kSkinnyMaxParts = kSkinnyGroups * kSkinnyPitch;  // of a row's squares

/// Shared memory behind the rings.
template <int kColumns>
struct SkinnyShared {
  alignas(16) float sums[kSkinnyGroups][kColumns][kSkinnyPitch];
  float factors[kColumns];
  std::uint64_t w_full[kSkinnyMaxDepth], w_empty[kSkinnyMaxDepth];
  std::uint64_t x_full[kSkinnyMaxDepth], x_empty[kSkinnyMaxDepth];
  std::uint64_t parts_full, factors_ready;

  /// What the factors are made of is here until there are sums: [kColumns][parts] of the squares.
  __device__ const float* parts(int row, int parts) const { return &sums[0][0][0] + row * parts; }
};

/// Where one walks in a ring, and the parity of the round. Holds addresses in shared memory.
class SkinnyRing {
 public:
  __device__ SkinnyRing(std::uint32_t base, int stage_bytes, int depth, const std::uint64_t* full,
                        const std::uint64_t* empty)
      : base_(base),
        stage_bytes_(static_cast<std::uint32_t>(stage_bytes)),
        depth_(depth),
        full_(shared_address(full)),
        empty_(shared_address(empty)) {}
  __device__ std::uint32_t at() const { return base_ + stage_ * stage_bytes_; }
  __device__ std::uint32_t full() const { return full_ + stage_ * 8; }
  __device__ std::uint32_t empty() const { return empty_ + stage_ * 8; }
  __device__ __forceinline__ void wait_full() const { barrier_wait(full(), parity_); }
  /// For the stage's use in the round before; in the first round at once.
  __device__ __forceinline__ void wait_empty() const { barrier_wait(empty(), parity_ ^ 1u); }
  __device__ __forceinline__ void advance() {
    if (++stage_ == static_cast<std::uint32_t>(depth_)) {
      stage_ = 0;
      parity_ ^= 1u;
    }
  }
  /// After `used` stages were filled: until all were handed back.
  __device__ __forceinline__ void drain(int used) {
    if (used < depth_) {
      stage_ = 0;
      parity_ = 1;
    }
#pragma unroll 1
    for (int i = 0; i < min(used, depth_); ++i) {
      wait_empty();
      advance();
    }
  }

 private:
  const std::uint32_t base_, stage_bytes_;
  const int depth_;
  const std::uint32_t full_, empty_;
  std::uint32_t stage_ = 0, parity_ = 0;
};

/// The rings of a block, as a copying or multiplying thread starts on them.
template <int kColumns>
__device__ SkinnyRing skinny_w_ring(const SkinnyArgs& args, const unsigned char* ring,
                                    const SkinnyShared<kColumns>& shared) {
  return {shared_address(ring), args.w_stage_bytes, args.w_depth, shared.w_full, shared.w_empty};
}
template <int kColumns>
__device__ SkinnyRing skinny_x_ring(const SkinnyArgs& args, const unsigned char* ring,
                                    const SkinnyShared<kColumns>& shared) {
  return {shared_address(ring) + static_cast<std::uint32_t>(args.w_depth * args.w_stage_bytes),
          args.x_stage_bytes, args.x_depth, shared.x_full, shared.x_empty};
}

/// One thread that copies the block's boxes of W.
template <typename Rows>
class SkinnyWeights {
 public:
  /// `pass_map` has boxes of a whole pass, `box_map` single ones.
  __device__ SkinnyWeights(const CUtensorMap& pass_map, const CUtensorMap& box_map,
                           const SkinnyArgs& args, const Rows& rows, const SkinnyRing& ring,
                           int begin, int end)
      : pass_map_(pass_map),
        box_map_(box_map),
        args_(args),
        rows_(rows),
        ring_(ring),
        box_(begin),
        end_(end) {}
  /// Before the wait.
  __device__ __forceinline__ void start() {
#pragma unroll 1
    for (; fetched_ < args_.early; ++fetched_) fetch();
  }
  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (; fetched_ < args_.passes * args_.stages; ++fetched_) {
      ring_.wait_empty();
      fetch();
    }
    ring_.drain(fetched_);
  }

 private:
  __device__ __forceinline__ void fetch() {
    const auto box_bytes = static_cast<std::uint32_t>(Rows::kBoxRows * args_.subs * 128);
    const int left = end_ - box_;
    if (Rows::kContiguous && left >= args_.pass_boxes) {
      barrier_arrive_expect(ring_.full(), static_cast<std::uint32_t>(args_.w_stage_bytes));
      const int3 at = rows_.place(box_);
      tma_load_5d(ring_.at(), &pass_map_, ring_.full(), 0, at.x, k_, at.y, at.z, read_once());
    } else {
      const int count = max(0, min(left, args_.pass_boxes));
      barrier_arrive_expect(ring_.full(), static_cast<std::uint32_t>(count) * box_bytes);
#pragma unroll 1
      for (int box = 0; box < count; ++box) {
        const int3 at = rows_.place(box_ + box);
        tma_load_5d(ring_.at() + static_cast<std::uint32_t>(box) * box_bytes, &box_map_,
                    ring_.full(), 0, at.x, k_, at.y, at.z, read_once());
      }
    }
    ring_.advance();
    if ((k_ += args_.subs) >= args_.stages * args_.subs) {
      k_ = 0;
      box_ += args_.pass_boxes;
    }
  }

  const CUtensorMap &pass_map_, &box_map_;
  const SkinnyArgs& args_;
  const Rows& rows_;
  SkinnyRing ring_;
  int box_, end_, k_ = 0, fetched_ = 0;
};

/// As one copy: loads would queue behind all that W has under way, again and again.
template <int kColumns>
__device__ __forceinline__ void skinny_copy_parts(const SkinnyArgs& args,
                                                  SkinnyShared<kColumns>& shared) {
  const auto size_bytes = static_cast<std::uint32_t>(args.m * args.parts + 3) / 4 * 16;
  barrier_arrive_expect(&shared.parts_full, size_bytes);
  bulk_load(shared.sums, args.square_sums, size_bytes, &shared.parts_full);
}

/// One thread that copies the block's part of the rows of x to all blocks of the cluster, by
/// eights. Where x has none they are not filled: that would take as long as copying them, and a
/// column of garbage has no effect on others.
template <int kColumns>
__device__ __forceinline__ void skinny_copy_x(const CUtensorMap& x, const SkinnyArgs& args,
                                              SkinnyRing ring, SkinnyShared<kColumns>& shared) {
  constexpr int kPart = kColumns / kSkinnyCluster;
  const int part = static_cast<int>(blockIdx.x % kSkinnyCluster) * kPart;
  const auto line = static_cast<std::uint32_t>(args.subs) * 128u;
  const auto bytes = static_cast<std::uint32_t>((args.m + 7) / 8 * 8) * line;
  const int total = args.passes * args.stages;
#pragma unroll 1
  for (int i = 0, k = 0; i < total; ++i) {
    ring.wait_empty();
    barrier_arrive_expect(ring.full(), bytes);
#pragma unroll
    for (int row = part; row < part + kPart; row += 8) {
      if (row >= args.m) break;
      tma_multicast_3d(ring.at() + static_cast<std::uint32_t>(row) * line, &x, ring.full(), 0, row,
                       k, static_cast<std::uint16_t>((1u << kSkinnyCluster) - 1));
    }
    if (i == 0 && args.parts > 0) skinny_copy_parts(args, shared);
    ring.advance();
    if ((k += args.subs) >= args.stages * args.subs) k = 0;
  }
  ring.drain(total);
}

/// One warpgroup that multiplies.
template <int kColumns>
class SkinnyConsumer {
 public:
  __device__ SkinnyConsumer(const SkinnyArgs& args, const SkinnyRing& w, const SkinnyRing& x)
      : args_(args), w_(w), x_(x) {}

  /// One pass: d = [64 rows of W] x [kColumns rows of x] over all of K.
  template <typename E>
  __device__ __forceinline__ void multiply(float (&d)[kColumns / 2]) {
    const std::uint32_t group = args_.splits_k ? 0 : threadIdx.x / 128;
    const std::uint32_t own = group * 8u * static_cast<std::uint32_t>(args_.subs) * 1024u;
#pragma unroll
    for (float& value : d) value = 0.0f;
    pin_registers(d);
#pragma unroll 1
    for (int i = 0; i < args_.stages; ++i, advance()) {
      if (!is_mine(i)) continue;
      w_.wait_full();
      x_.wait_full();
      std::uint64_t w = descriptor(w_.at() + own), x = descriptor(x_.at());
#pragma unroll 1
      for (int sub = 0; sub < args_.subs; ++sub, w += 64, x += 64) {
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < kSkinnyK / 16; ++step)
          wgmma_skinny<E>(d, w + step * 2, x + step * 2);
        wgmma_commit();
      }
      wgmma_wait<0>();  // short beside the copies: the stage is worth more than the overlap
      hand_back();
    }
    pin_registers(d);
  }
  /// A pass for which the warpgroup has no rows. Its warps keep together, as wgmma keeps them in
  /// `multiply`: one that came late to a stage handed back by another could find it two rounds on,
  /// where the parity that it waits for is past.
  __device__ __forceinline__ void skip() {
#pragma unroll 1
    for (int i = 0; i < args_.stages; ++i, advance()) {
      if (!is_mine(i)) continue;
      w_.wait_full();
      x_.wait_full();
      named_sync(1 + threadIdx.x / 128, 128);
      hand_back();
    }
  }

 private:
  __device__ std::uint64_t descriptor(std::uint32_t address) const {
    return kSwizzle128 | static_cast<std::uint64_t>(args_.subs * 1024 >> 4) << 32 |
           std::uint64_t{1} << 16 | (address & 0x3FFFFu) >> 4;
  }
  __device__ bool is_mine(int stage) const {
    return !args_.splits_k || static_cast<unsigned>(stage) % kSkinnyGroups == threadIdx.x / 128;
  }
  __device__ __forceinline__ void hand_back() const {
    const unsigned warp = threadIdx.x % 128 / 32;
    if (threadIdx.x % 32 != 0) return;
    if (warp < kSkinnyCluster) barrier_arrive_at(x_.empty(), warp);
    if (warp == kSkinnyCluster) barrier_arrive(w_.empty());
  }
  __device__ __forceinline__ void advance() {
    w_.advance();
    x_.advance();
  }

  const SkinnyArgs& args_;
  SkinnyRing w_, x_;
};

}  // namespace tandem::kernels
