// SPDX-License-Identifier: Apache-2.0
#include "parallel/shard.h"

#include <algorithm>

#include "kernels/device/error.h"

namespace tandem::parallel {
namespace {

struct HeadRanges {
  Range q, kv;
};

/// Whole KV groups, dealt as evenly as possible.
HeadRanges whole_groups(const ShardShape& shape, int rank, int size) {
  const std::int64_t group = shape.num_heads / shape.num_kv_heads;
  const Range kv = split_evenly(shape.num_kv_heads, 1, rank, size);
  return {{kv.begin * group, kv.end * group}, kv};
}

/// Contiguous query heads; every KV head that they touch comes along.
HeadRanges query_ranges(const ShardShape& shape, int rank, int size) {
  const std::int64_t group = shape.num_heads / shape.num_kv_heads;
  const Range q = split_evenly(shape.num_heads, 1, rank, size);
  if (q.size() == 0) return {q, {0, 0}};
  return {q, {q.begin / group, (q.end - 1) / group + 1}};
}

std::int64_t largest_query_count(const ShardShape& shape, int size,
                                 HeadRanges (*deal)(const ShardShape&, int, int)) {
  std::int64_t largest = 0;
  for (int rank = 0; rank < size; ++rank)
    largest = std::max(largest, deal(shape, rank, size).q.size());
  return largest;
}

std::int64_t num_units(std::int64_t total) { return (total + kColumnUnit - 1) / kColumnUnit; }

}  // namespace

Range split_evenly(std::int64_t total, std::int64_t unit, int rank, int size) {
  const std::int64_t units = (total + unit - 1) / unit;
  const std::int64_t share = units / size, extra = units % size;
  const std::int64_t begin = rank * share + std::min<std::int64_t>(rank, extra);
  const std::int64_t end = begin + share + (rank < extra ? 1 : 0);
  return {std::min(begin * unit, total), std::min(end * unit, total)};
}

int max_tensor_parallel_size(const ShardShape& shape) {
  return static_cast<int>(
      std::min({shape.num_heads, num_units(shape.intermediate_size), num_units(shape.vocab_size)}));
}

Shard::Shard(const ShardShape& shape, int rank, int size) : rank_(rank), size_(size) {
  TANDEM_REQUIRE(shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0,
                 "the model has ", shape.num_heads,
                 " attention heads, which is no multiple of its ", shape.num_kv_heads,
                 " key-value heads: config.json is wrong");
  const int largest = max_tensor_parallel_size(shape);
  TANDEM_REQUIRE(size <= largest, "tensor-parallel size ", size,
                 " is too large for this model: it has ", shape.num_heads, " attention heads and ",
                 num_units(shape.intermediate_size),
                 " blocks of 64 MLP columns, so some rank would get none; use at most ", largest,
                 " ranks (mpirun -n ", largest, ")");
  const bool groups =
      shape.num_kv_heads >= size && largest_query_count(shape, size, whole_groups) <=
                                        largest_query_count(shape, size, query_ranges);
  const HeadRanges heads =
      groups ? whole_groups(shape, rank, size) : query_ranges(shape, rank, size);
  q_heads_ = heads.q;
  kv_heads_ = heads.kv;
  const std::int64_t group = shape.num_heads / shape.num_kv_heads;
  first_own_kv_head_ = kv_heads_.begin * group < q_heads_.begin ? 1 : 0;
  for (std::int64_t q = q_heads_.begin; q < q_heads_.end; ++q)
    kv_head_of_q_.push_back(static_cast<std::int32_t>(q / group - kv_heads_.begin));
  intermediate_ = split_evenly(shape.intermediate_size, kColumnUnit, rank, size);
  vocab_ = split_evenly(shape.vocab_size, kColumnUnit, rank, size);
}

}  // namespace tandem::parallel
