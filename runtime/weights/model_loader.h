// SPDX-License-Identifier: Apache-2.0
// Brings one rank's slice of a checkpoint onto its device. Only the slice's bytes are read; each
// tensor is assembled (QKV as q|k|v, gate and up interleaved by 16 rows), as values or in the few
// bits of its file, in the memory that `staging.h` gives. Collective only in so far as every rank
// does it; nothing is communicated.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/gate_up_act.h"
#include "runtime/model.h"
#include "runtime/rope_table.h"
#include "runtime/weights/checkpoint.h"
#include "runtime/weights/staging.h"
#include "runtime/weights/tensor_names.h"
#include "runtime/weights/weight_formats.h"

namespace tandem::runtime {

template <typename T, Device D>
class ModelLoader {
 public:
  /// `keep_bits`: matrices that may (`quant_format`) stay in few bits; on CPU ranks.
  ModelLoader(Context<D>& ctx, const Checkpoint& checkpoint, const ModelConfig& config,
              const parallel::Shard& shard, bool keep_bits = false)
      : ctx_(ctx),
        checkpoint_(checkpoint),
        names_(config),
        config_(config),
        shard_(shard),
        keep_bits_(keep_bits) {}

  /// Rotary tables cover positions below `max_position`.
  Model<T, D> load(std::int64_t max_position) {
    Model<T, D> model{config_, shard_, {}, {}, {}, {}, {}, {}, 0};
    // The largest tensors first: while one is assembled it lies in memory twice.
    model.head = matrix({{names_.head(), shard_.vocab()}});
    if (!config_.tied_embeddings)
      model.embedding = stacked<T>({{names_.embedding(), shard_.vocab()}});
    checkpoint_.release_pages();
    for (std::int64_t i = 0; i < config_.num_layers(); ++i) model.layers.push_back(load_layer(i));
    model.final_norm = vector(names_.final_norm(), config_.norm_plus_one);
    for (const RopeConfig& rope : config_.ropes)
      model.ropes.push_back(make_rope(rope, max_position));
    Buffer<std::int32_t, Cpu> map(static_cast<std::int64_t>(shard_.kv_head_of_q().size()));
    std::copy(shard_.kv_head_of_q().begin(), shard_.kv_head_of_q().end(), map.data());
    model.kv_head_of_q = staging_.place(ctx_, std::move(map));
    ctx_.compute().synchronize();
    checkpoint_.release_pages();
    model.weight_bytes = bytes_ + model.embedding.size_bytes();
    return model;
  }

 private:
  using Range = parallel::Range;
  using Linear = kernels::LinearWeight<T, D>;
  /// Rows of a tensor, counted from the slice's first row.
  struct Part {
    TensorSlice slice;
    Range rows;
  };

  LayerWeights<T, D> load_layer(std::int64_t layer) {
    const auto name = [&](LayerTensor tensor) { return names_.layer(layer, tensor); };
    const Range q = scaled(shard_.q_heads(), config_.head_dim);
    const Range kv = scaled(shard_.kv_heads(), config_.head_dim);
    const bool plus_one = config_.norm_plus_one;
    LayerWeights<T, D> weights;
    weights.qkv = matrix(
        {{name(LayerTensor::kQ), q}, {name(LayerTensor::kK), kv}, {name(LayerTensor::kV), kv}});
    weights.qkv_bias = bias({{name(LayerTensor::kQBias), q},
                             {name(LayerTensor::kKBias), kv},
                             {name(LayerTensor::kVBias), kv}});
    weights.output = columns(name(LayerTensor::kO), q, q.size());
    weights.output_bias = vector(name(LayerTensor::kOBias), false);
    weights.gate_up = gate_up(name(LayerTensor::kGate), name(LayerTensor::kUp));
    weights.gate_up_bias = gate_up_bias(name(LayerTensor::kGateBias), name(LayerTensor::kUpBias));
    weights.down = columns(name(LayerTensor::kDown), shard_.intermediate(), padded_intermediate());
    weights.down_bias = vector(name(LayerTensor::kDownBias), false);
    weights.attention_norm = vector(name(LayerTensor::kAttentionNorm), plus_one);
    weights.attention_post_norm = vector(name(LayerTensor::kAttentionPostNorm), plus_one);
    weights.mlp_norm = vector(name(LayerTensor::kMlpNorm), plus_one);
    weights.mlp_post_norm = vector(name(LayerTensor::kMlpPostNorm), plus_one);
    weights.q_norm = head_norm(name(LayerTensor::kQNorm), q);
    weights.k_norm = head_norm(name(LayerTensor::kKNorm), kv);
    return weights;
  }

  static Range scaled(Range heads, std::int64_t dim) {
    return {heads.begin * dim, heads.end * dim};
  }
  std::int64_t padded_intermediate() const {
    constexpr std::int64_t unit = kernels::kGateUpInterleave;
    return (shard_.intermediate().size() + unit - 1) / unit * unit;
  }

  /// Of a matrix made of `parts` with columns `cols` of each: its form, none for values.
  std::optional<kernels::QuantFormat> format_of(const std::vector<TensorSlice>& parts,
                                                Range cols) const {
    if (std::is_same_v<D, Cpu> && std::is_same_v<T, BFloat16> && keep_bits_)
      return quant_format(checkpoint_, parts, cols);
    return std::nullopt;
  }
  /// Elements E in a row of so many values.
  template <typename E>
  static constexpr std::int64_t width(std::int64_t cols) {
    return std::is_same_v<E, kernels::QuantBlock> ? cols / kernels::QuantBlock::kValues : cols;
  }

  /// Reads a block of rows and columns with all threads of the rank.
  template <typename E>
  void read(const TensorSlice& slice, Range rows, Range cols, E* out, std::int64_t stride) {
    constexpr std::int64_t kRowsPerTask = 64;
    const std::int64_t tasks = (rows.size() + kRowsPerTask - 1) / kRowsPerTask;
#pragma omp parallel for schedule(dynamic)
    for (std::int64_t task = 0; task < tasks; ++task) {
      const std::int64_t begin = rows.begin + task * kRowsPerTask;
      read_some(slice, {begin, std::min(begin + kRowsPerTask, rows.end)}, cols,
                out + task * kRowsPerTask * stride, stride);
    }
  }
  template <typename E>
  void read_some(const TensorSlice& slice, Range rows, Range cols, E* out, std::int64_t stride) {
    checkpoint_.read(checkpoint_.at(slice.name), slice.row_begin + rows.begin, rows.size(),
                     cols.begin, cols.size(), out, stride);
  }

  /// All columns of some rows of several tensors, one under the other.
  template <typename E>
  Buffer<E, D> stacked(const std::vector<Part>& parts) {
    const std::int64_t cols = parts.front().slice.cols, stride = width<E>(cols);
    std::int64_t total = 0;
    for (const Part& part : parts) total += part.rows.size();
    return staging_.template assemble<E>(ctx_, total, stride, [&](Range wanted, E* out) {
      std::int64_t above = 0;
      for (const Part& part : parts) {
        const Range rows{std::max(wanted.begin - above, std::int64_t{0}),
                         std::min(wanted.end - above, part.rows.size())};
        if (rows.begin < rows.end)
          read(part.slice, {part.rows.begin + rows.begin, part.rows.begin + rows.end}, {0, cols},
               out + (above + rows.begin - wanted.begin) * stride, stride);
        above += part.rows.size();
      }
    });
  }

  /// A weight `[rows, cols]` in the form that `assemble(E{})`, of elements E, is asked for.
  template <typename Assemble>
  Linear finish(const std::optional<kernels::QuantFormat>& format, std::int64_t cols,
                const Assemble& assemble) {
    Linear weight;
    if constexpr (std::is_same_v<D, Cpu>)
      if (format) {
        auto blocks = assemble(kernels::QuantBlock{});
        checkpoint_.release_pages();
        const std::int64_t rows = blocks.size() / width<kernels::QuantBlock>(cols);
        weight = Linear(ctx_, *format, std::move(blocks), rows, cols);
      }
    if (!format) {
      auto values = assemble(T{});
      checkpoint_.release_pages();
      const std::int64_t rows = values.size() / cols;
      weight = Linear(ctx_, std::move(values), rows, cols);
    }
    bytes_ += weight.size_bytes();
    return weight;
  }

  Linear matrix(const std::vector<Part>& parts) {
    const std::int64_t cols = parts.front().slice.cols;
    std::vector<TensorSlice> slices;
    for (const Part& part : parts) slices.push_back(part.slice);
    return finish(format_of(slices, {0, cols}), cols,
                  [&](auto element) { return stacked<decltype(element)>(parts); });
  }

  /// All rows of some columns, padded with zero columns to `padded`.
  Linear columns(const TensorSlice& slice, Range cols, std::int64_t padded) {
    const auto format = padded == cols.size() ? format_of({slice}, cols) : std::nullopt;
    return finish(format, padded, [&](auto element) {
      using E = decltype(element);
      const std::int64_t stride = width<E>(padded);
      return staging_.template assemble<E>(ctx_, slice.rows, stride, [&](Range rows, E* out) {
        if (padded != cols.size()) std::fill(out, out + rows.size() * stride, E{});
        read(slice, rows, cols, out, stride);
      });
    });
  }

  Linear gate_up(const TensorSlice& gate, const TensorSlice& up) {
    return finish(format_of({gate, up}, {0, gate.cols}), gate.cols,
                  [&](auto element) { return interleaved<decltype(element)>(gate, up); });
  }
  template <typename E>
  Buffer<E, D> interleaved(const TensorSlice& gate, const TensorSlice& up) {
    constexpr std::int64_t unit = kernels::kGateUpInterleave;
    const Range mine = shard_.intermediate();
    const std::int64_t cols = gate.cols, stride = width<E>(cols);
    const auto fill = [&](Range rows, E* out) {
#pragma omp parallel for schedule(dynamic)
      for (std::int64_t row = rows.begin; row < rows.end; row += unit) {
        const std::int64_t begin = mine.begin + row / (2 * unit) * unit;
        const std::int64_t count = std::clamp(mine.end - begin, std::int64_t{0}, unit);
        E* to = out + (row - rows.begin) * stride;
        read_some(row / unit % 2 == 0 ? gate : up, {begin, begin + count}, {0, cols}, to, stride);
        std::fill(to + count * stride, to + unit * stride, E{});
      }
    };
    return staging_.template assemble<E>(ctx_, 2 * padded_intermediate(), stride, fill);
  }

  Buffer<float, D> gate_up_bias(const TensorSlice& gate, const TensorSlice& up) {
    if (!gate) return {};
    Buffer<float, Cpu> host(2 * padded_intermediate());
    std::memset(host.data(), 0, static_cast<std::size_t>(host.size_bytes()));
    interleave([&](bool is_up, Range range, std::int64_t row) {
      read_vector(is_up ? up : gate, range, host.data() + row);
    });
    return staging_.place(ctx_, std::move(host));
  }

  /// Calls visit(is_up, rows of the checkpoint, row of the interleaved weight) for blocks of 16.
  template <typename Visit>
  void interleave(const Visit& visit) {
    constexpr std::int64_t unit = kernels::kGateUpInterleave;
    const Range mine = shard_.intermediate();
    for (std::int64_t begin = mine.begin, row = 0; begin < mine.end;
         begin += unit, row += 2 * unit) {
      const Range range{begin, std::min(begin + unit, mine.end)};
      visit(false, range, row);
      visit(true, range, row + unit);
    }
  }

  void read_vector(const TensorSlice& slice, Range range, float* out) {
    checkpoint_.read(checkpoint_.at(slice.name), 0, 1, slice.row_begin + range.begin, range.size(),
                     out, range.size());
  }
  Buffer<float, D> bias(const std::vector<Part>& parts) {
    if (!parts.front().slice) return {};
    std::int64_t size = 0;
    for (const Part& part : parts) size += part.rows.size();
    Buffer<float, Cpu> host(size);
    float* out = host.data();
    for (const Part& part : parts) {
      read_vector(part.slice, part.rows, out);
      out += part.rows.size();
    }
    return staging_.place(ctx_, std::move(host));
  }
  Buffer<float, D> vector(const TensorSlice& slice, bool plus_one) {
    if (!slice) return {};
    Buffer<float, Cpu> host(slice.rows);
    read_vector(slice, {0, slice.rows}, host.data());
    if (plus_one)
      for (std::int64_t i = 0; i < slice.rows; ++i) host.data()[i] += 1.0f;
    return staging_.place(ctx_, std::move(host));
  }

  /// One norm for every head, or this rank's part of a norm that spans the heads of all ranks.
  Buffer<float, D> head_norm(const TensorSlice& slice, Range mine) {
    if (!config_.qk_norm_full) return vector(slice, config_.norm_plus_one);
    return bias({{slice, mine}});
  }

  RopeBuffers<D> make_rope(const RopeConfig& rope, std::int64_t max_position) {
    const HostRopeTable table = make_rope_table(rope, max_position);
    return {constant(table.cos), constant(table.sin), rope.rotary_dim};
  }
  Buffer<float, D> constant(const std::vector<float>& values) {
    Buffer<float, Cpu> host(static_cast<std::int64_t>(values.size()));
    std::copy(values.begin(), values.end(), host.data());
    return staging_.place(ctx_, std::move(host));
  }

  Context<D>& ctx_;
  const Checkpoint& checkpoint_;
  TensorNames names_;
  const ModelConfig& config_;
  const parallel::Shard& shard_;
  bool keep_bits_;
  WeightStaging<D> staging_;
  std::int64_t bytes_ = 0;
};

}  // namespace tandem::runtime
