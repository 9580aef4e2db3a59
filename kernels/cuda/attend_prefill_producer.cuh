// SPDX-License-Identifier: Apache-2.0
// The producer: one warp that takes work, tells the consumers about it, and keeps the rings of K
// and V tiles full through TMA. A tile is two chunks, so two boxes (per 64 columns) on one
// barrier. A chunk that begins at or past the sequence's end is never touched: its number may be
// stale and its memory unmapped; consumers mask its keys and zero its values.
#pragma once

#include "kernels/cuda/attend_prefill_scheduler.cuh"
#include "kernels/cuda/tma.cuh"

namespace tandem::kernels::prefill {

/// Chunk numbers of one sequence, 32 at a time, one per lane.
class ChunkNumbers {
 public:
  __device__ __forceinline__ ChunkNumbers(const std::int32_t* table, int kv_tokens)
      : table_(table), num_chunks_((kv_tokens + kChunkTokens - 1) / kChunkTokens) {}

  /// All lanes; walks cheaply as long as `index` stays in the same 32.
  __device__ __forceinline__ int operator[](int index) {
    if (index / kWarp != block_) {
      block_ = index / kWarp;
      const int own = block_ * kWarp + static_cast<int>(threadIdx.x % kWarp);
      number_ = own < num_chunks_ ? table_[own] : -1;
    }
    return __shfl_sync(~0u, number_, index % kWarp);
  }

 private:
  const std::int32_t* table_;
  int num_chunks_, block_ = -1, number_ = -1;
};

/// Chunk numbers of one key tile; `second` is negative when the sequence ends before it.
struct TileChunks {
  int first, second;
};

template <int kHeadDim>
class Producer {
 public:
  using Bytes = TileBytes<kHeadDim>;

  __device__ __forceinline__ Producer(const Params& params, SharedMemory<kHeadDim>& shared)
      : params_(params), shared_(shared), leader_(threadIdx.x % kWarp == 0) {}

  __device__ __forceinline__ void run() {
    if (leader_) {
      prefetch_tensor_map(&params_.q);
      prefetch_tensor_map(&params_.kv);
    }
    Scheduler scheduler(params_, shared_.levels);
    for (Tile tile; scheduler.next(tile);) load_work(tile);
    announce(Work{}, false);
  }

 private:
  /// K runs one tile ahead of V, as the consumers do.
  __device__ __forceinline__ void load_work(const Tile& tile) {
    const Work work = describe(tile);
    const int slot = params_.slots[work.row], kv_head = params_.kv_head_of_q[work.head];
    ChunkNumbers chunks(params_.chunk_table + std::int64_t{slot} * params_.table_stride,
                        work.kv_tokens);
    TileChunks previous{};
    for (int n = work.tile_end - 1; n >= work.tile_begin; --n) {
      const TileChunks here{chunks[2 * n], chunks[2 * n + 1]};
      load_tile(shared_.k[position_k_.stage], shared_.barriers.k_full, shared_.barriers.k_empty,
                position_k_, here, kv_head);
      if (n == work.tile_end - 1)
        announce(work, true);
      else
        load_values(previous, kv_head);
      previous = here;
    }
    if (work.tile_end > work.tile_begin)
      load_values(previous, kv_head);
    else
      announce(work, false);
  }

  __device__ __forceinline__ Work describe(const Tile& tile) const {
    const int begin = params_.segment_begin[tile.segment];
    const int rows = params_.segment_begin[tile.segment + 1] - begin;
    const int position = params_.positions[begin], offset = tile.index * kRows;
    Work work;
    work.row = begin + offset;
    work.rows = min(kRows, rows - offset);
    work.position = position + offset;
    work.head = tile.head;
    work.valid = 1;
    work.split = tile.split;
    if (position < 0) return work;
    work.kv_tokens = position + rows;
    if (params_.window > 0) work.tile_begin = max(0, work.position + 1 - params_.window) / kKeys;
    work.tile_end = (work.position + work.rows + kKeys - 1) / kKeys;
    if (params_.splits > 1) {
      const int share = (work.tile_end - work.tile_begin + params_.splits - 1) / params_.splits;
      work.tile_begin = min(work.tile_begin + work.split * share, work.tile_end);
      work.tile_end = min(work.tile_begin + share, work.tile_end);
    }
    return work;
  }

  __device__ __forceinline__ void announce(const Work& work, bool load_queries) {
    Barriers& barriers = shared_.barriers;
    barrier_wait(&barriers.q_empty, q_parity_ ^ 1u);
    q_parity_ ^= 1u;
    if (leader_) {
      shared_.work = work;
      if (load_queries) {
        barrier_arrive_expect(&barriers.q_full, Bytes::kQueryTile);
        for (int half = 0; half < Bytes::kHalves; ++half)
          tma_load_3d(shared_.q + half * Bytes::kQueryHalf, &params_.q, &barriers.q_full,
                      half * kHalfColumns, work.head, work.row);
      } else {
        barrier_arrive(&barriers.q_full);
      }
    }
    __syncwarp();
  }

  __device__ __forceinline__ void load_values(const TileChunks& chunks, int kv_head) {
    load_tile(shared_.v[position_v_.stage], shared_.barriers.v_full, shared_.barriers.v_empty,
              position_v_, chunks, params_.num_kv_heads + kv_head);
  }

  /// `index` is k|v and head: the third axis of the cache's tensor map.
  __device__ __forceinline__ void load_tile(std::uint8_t* to, std::uint64_t* full,
                                            std::uint64_t* empty,
                                            RingPosition<Bytes::kStages>& position,
                                            const TileChunks& chunks, int index) {
    barrier_wait(&empty[position.stage], position.parity ^ 1u);
    if (leader_) {
      std::uint64_t* barrier = &full[position.stage];
      const bool both = chunks.second >= 0;
      barrier_arrive_expect(barrier, Bytes::kHalves * Bytes::kChunkHalf * (both ? 2 : 1));
      for (int half = 0; half < Bytes::kHalves; ++half) {
        std::uint8_t* rows = to + half * Bytes::kKeysHalf;
        tma_load_4d(rows, &params_.kv, barrier, half * kHalfColumns, 0, index, chunks.first);
        if (both)
          tma_load_4d(rows + Bytes::kChunkHalf, &params_.kv, barrier, half * kHalfColumns, 0, index,
                      chunks.second);
      }
    }
    __syncwarp();
    position.advance();
  }

  const Params& params_;
  SharedMemory<kHeadDim>& shared_;
  bool leader_;
  std::uint32_t q_parity_ = 0;
  RingPosition<Bytes::kStages> position_k_, position_v_;
};

}  // namespace tandem::kernels::prefill
