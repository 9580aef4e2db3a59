// SPDX-License-Identifier: Apache-2.0
// Which query tile a block works on next. Blocks are persistent and take work from one atomic
// counter; work number w is mapped to (section of heads, level, segment, head) so that long tiles
// come first (longest processing time first, Graham 1969) and heads that share K and V run side by
// side. Used by the producer warp alone, all lanes together; work numbers only grow, so the search
// goes on from where the last one ended.
#pragma once

#include "kernels/cuda/attend_prefill_tile.cuh"

namespace tandem::kernels::prefill {

struct Tile {
  int segment, index, head, split;
};

class Scheduler {
 public:
  /// Counts tiles and fills `levels`.
  __device__ __forceinline__ Scheduler(const Params& params, Levels* levels)
      : params_(params), levels_(levels), lane_(threadIdx.x % kWarp) {
    int tiles = 0, top = 0;
    for (int s = lane_; s < params.num_segments; s += kWarp) {
      const int begin = params.segment_begin[s], rows = params.segment_begin[s + 1] - begin;
      const int count = (rows + kRows - 1) / kRows;
      const int before = rows > 0 ? max(params.positions[begin], 0) : 0;
      const int first = (before + kRows - 1) / kRows + 1, last = first + count - 1;
      levels[s] = {static_cast<std::uint16_t>(first), static_cast<std::uint16_t>(last)};
      tiles += count;
      top = max(top, last);
    }
    tiles_ = __reduce_add_sync(~0u, tiles);
    top_ = __reduce_max_sync(~0u, top);
    __syncwarp();
    fetch();
  }

  /// The next piece of work; false when none is left.
  __device__ __forceinline__ bool next(Tile& tile) {
    const int number = __shfl_sync(~0u, fetched_, 0);
    const int work = number / params_.splits;
    if (work >= tiles_ * params_.num_q_heads) return false;
    fetch();
    tile.split = number - work * params_.splits;
    const int full_section = tiles_ * params_.heads_per_section;
    const int section = work / full_section, first_head = section * params_.heads_per_section;
    const int heads = min(params_.heads_per_section, params_.num_q_heads - first_head);
    const int in_section = work - section * full_section;
    const int rank = in_section / heads;
    tile.head = first_head + in_section - rank * heads;
    if (section != section_) {
      section_ = section;
      level_ = top_;
      passed_ = 0;
    }
    find(rank, tile);
    return true;
  }

 private:
  /// Starts the read of the next work number; its latency passes under the current piece of work.
  __device__ __forceinline__ void fetch() {
    if (lane_ == 0) fetched_ = static_cast<int>(atomicAdd(params_.next_work, 1u));
  }

  /// Segments 32 g + lane that have a tile at the current level, as a bit mask.
  __device__ __forceinline__ unsigned present(int group) const {
    const int s = group * kWarp + lane_;
    bool has = false;
    if (s < params_.num_segments) {
      const Levels levels = levels_[s];
      has = levels.first <= level_ && level_ <= levels.last;
    }
    return __ballot_sync(~0u, has);
  }

  /// The tile of this rank in the order (level from the top, segment).
  __device__ __forceinline__ void find(int rank, Tile& tile) {
    const int groups = (params_.num_segments + kWarp - 1) / kWarp;
    for (;; --level_) {
      int here = 0;
      for (int group = 0; group < groups; ++group) {
        const unsigned mask = present(group);
        const int count = __popc(mask), wanted = rank - passed_ - here;
        if (wanted < count) {
          tile.segment = group * kWarp + static_cast<int>(__fns(mask, 0, wanted + 1));
          tile.index = level_ - levels_[tile.segment].first;
          return;
        }
        here += count;
      }
      passed_ += here;
    }
  }

  const Params& params_;
  const Levels* levels_;
  int lane_, tiles_, top_;
  int fetched_ = 0, section_ = -1, level_ = 0, passed_ = 0;
};

}  // namespace tandem::kernels::prefill
