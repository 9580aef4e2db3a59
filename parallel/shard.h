// SPDX-License-Identifier: Apache-2.0
// Who owns which slice of a model at a tensor-parallel size, also when nothing divides.
//
// KV heads >= ranks: whole KV groups (one KV head with its query heads) go to ranks as evenly as
// possible. Fewer KV heads than ranks, or when it gives the smaller maximum: contiguous ranges of
// query heads, each rank keeping every KV head it touches. Intermediate and vocabulary columns are
// split in units of 64. Plain host values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::parallel {

struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

inline constexpr std::int64_t kColumnUnit = 64;

/// The shape numbers that sharding looks at.
struct ShardShape {
  std::int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  std::int64_t intermediate_size = 0, vocab_size = 0;
};

/// Rank r's part of `total` items dealt in units of `unit`, as evenly as possible, first ranks
/// first; the last unit may be short.
Range split_evenly(std::int64_t total, std::int64_t unit, int rank, int size);

class Shard {
 public:
  /// ConfigError when a rank would get no query head (with the nearest legal sizes), or no unit
  /// of the intermediate or vocabulary columns.
  Shard(const ShardShape& shape, int rank, int size);

  int rank() const { return rank_; }
  int size() const { return size_; }
  Range q_heads() const { return q_heads_; }
  Range kv_heads() const { return kv_heads_; }
  /// 1 when the rank before also holds this rank's first KV head, else 0: each KV head belongs to
  /// the first rank that holds it.
  std::int64_t first_own_kv_head() const { return first_own_kv_head_; }
  Range intermediate() const { return intermediate_; }
  Range vocab() const { return vocab_; }
  /// This rank's KV head number for each of its query heads.
  const std::vector<std::int32_t>& kv_head_of_q() const { return kv_head_of_q_; }

 private:
  int rank_, size_;
  std::int64_t first_own_kv_head_ = 0;
  Range q_heads_, kv_heads_, intermediate_, vocab_;
  std::vector<std::int32_t> kv_head_of_q_;
};

/// Largest tensor-parallel size that `shape` allows.
int max_tensor_parallel_size(const ShardShape& shape);

}  // namespace tandem::parallel
