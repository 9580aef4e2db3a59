// SPDX-License-Identifier: Apache-2.0
// Attention in blocks: neighbouring rows of one sequence, with all query heads of one KV head, are
// the queries that share a chunk of keys and values once it is converted to float. Online softmax
// over the chunks (Milakov and Gimelshein 2018, arXiv 1805.02867).
#include "kernels/attend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/cpu/few_queries.h"
#include "kernels/cpu/small_matmul.h"
#include "kernels/cpu/vec.h"
#include "kernels/device/cpu/context.h"
#include "kernels/device/dtype.h"

namespace tandem::kernels {
namespace {

using cpu::Floats;
using cpu::kFloats;
using cpu::kTileCols;

/// Rows of a block: enough that converting a chunk is little beside using it.
constexpr std::int32_t kMaxBlockRows = 16;

/// Rows [first, first + count) of one sequence, at neighbouring positions.
struct RowBlock {
  std::int32_t first = 0, count = 0;
};

std::vector<RowBlock> row_blocks(const StepView<Cpu>& step) {
  std::vector<RowBlock> blocks;
  for (std::int32_t row = 0; row < step.num_tokens; ++row) {
    RowBlock* last = blocks.empty() ? nullptr : &blocks.back();
    const bool joins = last != nullptr && last->count < kMaxBlockRows && step.positions[row] > 0 &&
                       step.slots[row] == step.slots[row - 1] &&
                       step.positions[row] == step.positions[row - 1] + 1;
    if (joins)
      ++last->count;
    else
      blocks.push_back({row, 1});
  }
  return blocks;
}

/// With fewer queries than this, keys and values are not worth converting ahead of use.
constexpr std::int32_t kMinConverted = 8;

/// Scratch whose contents are written before they are read.
std::unique_ptr<float[]> scratch(std::int64_t size) {
  return std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(size));
}

/// The work of one row block and one KV head; owns its scratch, sized for the largest block.
template <typename T>
class BlockAttention {
 public:
  BlockAttention(const AttendArgs<T, Cpu>& args, std::int32_t max_queries)
      : args_(args),
        dim_(args.kv.head_dim),
        padded_dim_((dim_ + kTileCols - 1) / kTileCols * kTileCols),
        q_(scratch(std::int64_t{max_queries} * dim_)),
        keys_(is_few(max_queries) ? nullptr : scratch(std::int64_t{dim_} * kChunkTokens)),
        values_(is_few(max_queries) ? nullptr : scratch(std::int64_t{kChunkTokens} * padded_dim_)),
        scores_(scratch(std::int64_t{max_queries} * kChunkTokens)),
        out_(scratch(std::int64_t{max_queries} * padded_dim_)),
        maximum_(std::size_t(max_queries)),
        sum_(std::size_t(max_queries)) {}

  /// Query heads [head, head + heads), all of KV head `kv_head`.
  void run(const RowBlock& block, std::int32_t head, std::int32_t heads, std::int32_t kv_head) {
    begin(block, head, heads);
    const std::int32_t position = args_.step->positions[block.first];
    const std::int32_t end = position + block.count;
    for (std::int32_t key = first_key(position); key < end;) {
      const std::int32_t next = std::min(key / kChunkTokens * kChunkTokens + kChunkTokens, end);
      const Chunk chunk = chunk_at(args_.step->slots[block.first], kv_head, key, next);
      score(chunk);
      absorb_chunk(position, heads, key, next);
      add_values(chunk);
      key = next;
    }
    finish(block, head, heads);
  }

 private:
  std::int32_t first_key(std::int32_t position) const {
    return args_.window > 0 ? std::max(0, position + 1 - args_.window) : 0;
  }

  bool is_few(std::int32_t queries) const { return queries < kMinConverted && dim_ % kFloats == 0; }

  void begin(const RowBlock& block, std::int32_t head, std::int32_t heads) {
    queries_ = block.count * heads;
    for (std::int32_t i = 0; i < queries_; ++i) {
      const T* q = args_.q.row(block.first + i / heads) + std::int64_t{head + i % heads} * dim_;
      for (std::int32_t d = 0; d < dim_; ++d)
        q_[std::int64_t{i} * dim_ + d] = static_cast<float>(q[d]) * args_.scale;
    }
    std::fill_n(out_.get(), std::int64_t{queries_} * padded_dim_, 0.0f);
    std::fill(sum_.begin(), sum_.end(), 0.0f);
    std::fill(maximum_.begin(), maximum_.end(), -std::numeric_limits<float>::infinity());
  }

  /// Keys and values of one head `[64, dim]`, of which tokens [from, to) are wanted. What an
  /// earlier request left in the others may be NaN.
  struct Chunk {
    const T *keys, *values;
    std::int32_t from, to;
  };

  Chunk chunk_at(std::int32_t slot, std::int32_t kv_head, std::int32_t begin,
                 std::int32_t end) const {
    const KvView<T, Cpu>& kv = args_.kv;
    const std::int64_t chunk =
        kv.chunk_table[std::int64_t{slot} * kv.table_stride + begin / kChunkTokens];
    const T* keys = kv.base + chunk * kv.chunk_stride + args_.layer * kv.layer_stride +
                    kv_head * kv.head_stride();
    const std::int32_t from = begin % kChunkTokens;
    return {keys, keys + kv.num_kv_heads * kv.head_stride(), from, from + end - begin};
  }

  void score(const Chunk& chunk) {
    if (is_few(queries_)) {
      cpu::in_parts_of_four(queries_, [&](std::int32_t first, auto count) {
        cpu::score_few<count>(q_.get() + std::int64_t{first} * dim_, chunk.keys, chunk.values, dim_,
                              chunk.from, chunk.to,
                              scores_.get() + std::int64_t{first} * kChunkTokens, kChunkTokens);
      });
      return;
    }
    if (chunk.to - chunk.from < kChunkTokens)
      std::fill_n(keys_.get(), std::int64_t{dim_} * kChunkTokens, 0.0f);
    for (std::int32_t i = chunk.from; i < chunk.to; ++i)
      for (std::int32_t d = 0; d < dim_; ++d)
        keys_[std::int64_t{d} * kChunkTokens + i] = chunk.keys[std::int64_t{i} * dim_ + d];
    std::fill_n(scores_.get(), std::int64_t{queries_} * kChunkTokens, 0.0f);
    cpu::multiply_add(q_.get(), dim_, keys_.get(), kChunkTokens, dim_, scores_.get(), queries_);
  }

  void add_values(const Chunk& chunk) {
    if (is_few(queries_)) {
      cpu::in_parts_of_four(queries_, [&](std::int32_t first, auto count) {
        cpu::add_values_few<count>(scores_.get() + std::int64_t{first} * kChunkTokens, kChunkTokens,
                                   chunk.values, dim_, chunk.from, chunk.to,
                                   out_.get() + std::int64_t{first} * padded_dim_, padded_dim_);
      });
      return;
    }
    if (chunk.to - chunk.from < kChunkTokens || padded_dim_ != dim_)
      std::fill_n(values_.get(), std::int64_t{kChunkTokens} * padded_dim_, 0.0f);
    for (std::int32_t i = chunk.from; i < chunk.to; ++i)
      for (std::int32_t d = 0; d < dim_; ++d)
        values_[std::int64_t{i} * padded_dim_ + d] = chunk.values[std::int64_t{i} * dim_ + d];
    cpu::multiply_add(scores_.get(), kChunkTokens, values_.get(), padded_dim_, kChunkTokens,
                      out_.get(), queries_);
  }

  void absorb_chunk(std::int32_t position, std::int32_t heads, std::int32_t begin,
                    std::int32_t end) {
    const std::int32_t chunk_begin = begin / kChunkTokens * kChunkTokens;
    for (std::int32_t i = 0; i < queries_; ++i) {
      const std::int32_t at = position + i / heads;
      const std::int32_t from = std::max(begin, first_key(at)) - chunk_begin;
      const std::int32_t to = std::min(end, at + 1) - chunk_begin;
      absorb(i, std::max(from, 0), std::max(to, 0));
    }
  }

  /// Scores [from, to) of one query become weights, the others 0; earlier sums are rescaled.
  void absorb(std::int32_t query, std::int32_t from, std::int32_t to) {
    float* scores = scores_.get() + std::int64_t{query} * kChunkTokens;
    if (from >= to) {
      std::fill_n(scores, kChunkTokens, 0.0f);
      return;
    }
    if (args_.softcap > 0) cap(scores);
    float& maximum = maximum_[std::size_t(query)];
    float& sum = sum_[std::size_t(query)];
    const float before = maximum;
    for (std::int32_t i = from; i < to; ++i) maximum = std::max(maximum, scores[i]);
    if (before != maximum && sum > 0) {
      const float correction = cpu::exponential(cpu::splat(before - maximum))[0];
      sum *= correction;
      float* out = out_.get() + std::int64_t{query} * padded_dim_;
      for (std::int32_t d = 0; d < dim_; ++d) out[d] *= correction;
    }
    for (std::int32_t i = 0; i < kChunkTokens; i += kFloats)
      cpu::store(scores + i, cpu::exponential(cpu::load<Floats>(scores + i) - maximum));
    std::fill(scores, scores + from, 0.0f);
    std::fill(scores + to, scores + kChunkTokens, 0.0f);
    Floats added{};
    for (std::int32_t i = 0; i < kChunkTokens; i += kFloats) added += cpu::load<Floats>(scores + i);
    sum += cpu::sum(added);
  }

  /// softcap * tanh(score / softcap)
  void cap(float* scores) const {
    for (std::int32_t i = 0; i < kChunkTokens; i += kFloats) {
      const Floats e = cpu::exponential(cpu::load<Floats>(scores + i) * (2.0f / args_.softcap));
      cpu::store(scores + i, args_.softcap - 2.0f * args_.softcap / (e + 1.0f));
    }
  }

  void finish(const RowBlock& block, std::int32_t head, std::int32_t heads) {
    for (std::int32_t i = 0; i < queries_; ++i) {
      T* to = args_.out.row(block.first + i / heads) + std::int64_t{head + i % heads} * dim_;
      const float inverse = 1.0f / sum_[std::size_t(i)];
      for (std::int32_t d = 0; d < dim_; ++d)
        to[d] = T(out_[std::int64_t{i} * padded_dim_ + d] * inverse);
    }
  }

  const AttendArgs<T, Cpu>& args_;
  std::int32_t dim_, padded_dim_, queries_ = 0;
  std::unique_ptr<float[]> q_;              ///< [queries, dim], scaled
  std::unique_ptr<float[]> keys_, values_;  ///< [dim, 64], [64, padded dim]; null: only few queries
  std::unique_ptr<float[]> scores_;         ///< [queries, 64]
  std::unique_ptr<float[]> out_;            ///< [queries, padded dim]
  std::vector<float> maximum_, sum_;
};

}  // namespace

template <typename T>
void attend(Context<Cpu>&, const AttendArgs<T, Cpu>& args) {
  const std::vector<RowBlock> blocks = row_blocks(*args.step);
  // Query heads of a KV head are neighbours.
  std::vector<std::int32_t> first_head{0};
  for (std::int32_t head = 1; head < args.num_q_heads; ++head)
    if (args.kv_head_of_q[head] != args.kv_head_of_q[head - 1]) first_head.push_back(head);
  const auto groups = static_cast<std::int64_t>(first_head.size());
  first_head.push_back(args.num_q_heads);
  std::int32_t max_heads = 0, max_rows = 0;
  for (std::int64_t g = 0; g < groups; ++g)
    max_heads = std::max(max_heads, first_head[g + 1] - first_head[g]);
  for (const RowBlock& block : blocks) max_rows = std::max(max_rows, block.count);
  const std::int64_t work = groups * static_cast<std::int64_t>(blocks.size());
#pragma omp parallel if (work > 1)
  {
    BlockAttention<T> attention(args, max_heads * max_rows);
#pragma omp for schedule(dynamic)
    for (std::int64_t i = 0; i < work; ++i) {
      const RowBlock& block = blocks[static_cast<std::size_t>(i / groups)];
      const std::int32_t head = first_head[i % groups], end = first_head[i % groups + 1];
      if (args.step->positions[block.first] >= 0) {
        attention.run(block, head, end - head, args.kv_head_of_q[head]);
        continue;
      }
      T* out = args.out.row(block.first) + std::int64_t{head} * args.kv.head_dim;
      std::fill_n(out, std::int64_t{end - head} * args.kv.head_dim, T(0.0f));
    }
  }
}

template void attend(Context<Cpu>&, const AttendArgs<float, Cpu>&);
template void attend(Context<Cpu>&, const AttendArgs<BFloat16, Cpu>&);
template void attend(Context<Cpu>&, const AttendArgs<Float16, Cpu>&);

}  // namespace tandem::kernels
