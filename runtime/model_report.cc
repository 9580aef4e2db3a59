// SPDX-License-Identifier: Apache-2.0
#include "runtime/model_report.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <iomanip>
#include <sstream>

#include "runtime/weights/tensor_names.h"
#include "runtime/weights/weight_formats.h"

namespace tandem::runtime {
namespace {

namespace json = boost::json;
using parallel::Range;

constexpr std::int64_t kVectorBytes = 4;  // norms and biases are float32 on every rank

/// How a rank's share of a layer tensor counts: rows, columns, or all of it.
std::int64_t elements(const TensorNames& names, LayerTensor tensor, const ModelConfig& config,
                      const Range& q_heads, const Range& kv_heads, const Range& intermediate) {
  const TensorSlice slice = names.layer(0, tensor);
  const std::int64_t cols = std::max<std::int64_t>(slice.cols, 1);
  if (!slice) return 0;
  switch (tensor) {
    case LayerTensor::kQ:
    case LayerTensor::kQBias:
      return q_heads.size() * config.head_dim * cols;
    case LayerTensor::kK:
    case LayerTensor::kV:
    case LayerTensor::kKBias:
    case LayerTensor::kVBias:
      return kv_heads.size() * config.head_dim * cols;
    case LayerTensor::kO:
      return slice.rows * q_heads.size() * config.head_dim;
    case LayerTensor::kGate:
    case LayerTensor::kUp:
    case LayerTensor::kGateBias:
    case LayerTensor::kUpBias:
      return intermediate.size() * cols;
    case LayerTensor::kDown:
      return slice.rows * intermediate.size();
    case LayerTensor::kQNorm:
      return config.qk_norm_full ? q_heads.size() * config.head_dim : slice.rows;
    case LayerTensor::kKNorm:
      return config.qk_norm_full ? kv_heads.size() * config.head_dim : slice.rows;
    default:
      return slice.rows;
  }
}

/// A rank's part of a model.
struct Part {
  Range q_heads, kv_heads, intermediate, vocab;
};

/// The few bits of the matrix that `tensor` is part of on a rank; none: values.
std::optional<kernels::QuantFormat> format_of(const Checkpoint* kept, const TensorNames& names,
                                              std::int64_t layer, LayerTensor tensor,
                                              const ModelConfig& config, const Part& part) {
  if (kept == nullptr) return std::nullopt;
  const auto slice = [&](LayerTensor one) { return names.layer(layer, one); };
  const Range all{0, slice(tensor).cols};
  switch (tensor) {
    case LayerTensor::kO:
      return quant_format(
          *kept, {slice(tensor)},
          {part.q_heads.begin * config.head_dim, part.q_heads.end * config.head_dim});
    case LayerTensor::kDown:
      return quant_format(*kept, {slice(tensor)}, part.intermediate);
    case LayerTensor::kGate:
    case LayerTensor::kUp:
      return quant_format(*kept, {slice(LayerTensor::kGate), slice(LayerTensor::kUp)}, all);
    default:
      return quant_format(
          *kept, {slice(LayerTensor::kQ), slice(LayerTensor::kK), slice(LayerTensor::kV)}, all);
  }
}

std::int64_t matrix_bytes(std::int64_t elements, DType dtype,
                          const std::optional<kernels::QuantFormat>& format) {
  return format ? elements / kernels::QuantBlock::kValues * format->block_bytes()
                : elements * size_bytes(dtype);
}

/// `kept`: whose few bits stay; null: none do.
std::int64_t weight_bytes(const ModelConfig& config, DType dtype, const Part& part,
                          const Checkpoint* kept) {
  const TensorNames names(config);
  std::int64_t bytes = config.hidden_size * kVectorBytes;
  for (std::int64_t layer = 0; layer < config.num_layers(); ++layer)
    for (int i = 0; i < kNumLayerTensors; ++i) {
      const auto tensor = static_cast<LayerTensor>(i);
      const std::int64_t size =
          elements(names, tensor, config, part.q_heads, part.kv_heads, part.intermediate);
      bytes += names.layer(layer, tensor).cols > 0
                   ? matrix_bytes(size, dtype, format_of(kept, names, layer, tensor, config, part))
                   : size * kVectorBytes;
    }
  const std::int64_t table = part.vocab.size() * config.hidden_size;
  if (!config.tied_embeddings) bytes += table * size_bytes(dtype);
  const auto head =
      kept == nullptr ? std::nullopt : quant_format(*kept, {names.head()}, {0, config.hidden_size});
  return bytes + matrix_bytes(table, dtype, head);
}

std::int64_t kv_bytes(const ModelConfig& config, DType dtype, const Range& kv_heads) {
  return 2 * config.num_layers() * kv_heads.size() * config.head_dim * size_bytes(dtype);
}

std::string range_text(const Range& range) {
  if (range.size() == 1) return concat(range.begin);
  return concat(range.begin, "-", range.end - 1, " (", range.size(), ")");
}

std::string parameters_text(std::int64_t count) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(2);
  if (count >= 1'000'000'000)
    out << static_cast<double>(count) / 1e9 << " billion";
  else
    out << static_cast<double>(count) / 1e6 << " million";
  return out.str();
}

json::array range_json(const Range& range) { return {range.begin, range.end}; }

}  // namespace

std::string bytes_text(std::int64_t bytes) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1);
  if (bytes >= 1'000'000'000)
    out << static_cast<double>(bytes) / 1e9 << " GB";
  else if (bytes >= 1'000'000)
    out << static_cast<double>(bytes) / 1e6 << " MB";
  else if (bytes >= 10'000)
    out << static_cast<double>(bytes) / 1e3 << " kB";
  else
    out << bytes << " B";
  return out.str();
}

parallel::ShardShape shard_shape(const ModelConfig& config) {
  return {config.num_heads, config.num_kv_heads, config.head_dim, config.intermediate_size,
          config.vocab_size};
}

ModelReport report_model(const ModelConfig& config, int tensor_parallel_size, DType dtype,
                         const Checkpoint* checkpoint) {
  const Checkpoint* kept = dtype == DType::kBF16 ? checkpoint : nullptr;
  ModelReport report;
  report.config = config;
  report.dtype = dtype;
  report.num_parameters = config.num_parameters();
  std::int64_t total = 0, largest = 0, total_kv = 0;
  for (int rank = 0; rank < tensor_parallel_size; ++rank) {
    const parallel::Shard shard(shard_shape(config), rank, tensor_parallel_size);
    RankReport item{
        shard.q_heads(), shard.kv_heads(), shard.intermediate(), shard.vocab(), 0, 0, 0};
    const Part part{item.q_heads, item.kv_heads, item.intermediate, item.vocab};
    item.weight_bytes = weight_bytes(config, dtype, part, nullptr);
    item.cpu_weight_bytes =
        kept == nullptr ? item.weight_bytes : weight_bytes(config, dtype, part, kept);
    item.kv_bytes_per_token = kv_bytes(config, dtype, item.kv_heads);
    total += item.weight_bytes;
    total_kv += item.kv_bytes_per_token;
    largest = std::max(largest, item.weight_bytes);
    report.ranks.push_back(item);
  }
  const Range all_kv{0, config.num_kv_heads};
  report.imbalance =
      static_cast<double>(largest) * tensor_parallel_size / static_cast<double>(total);
  report.duplicated_bytes =
      total -
      weight_bytes(
          config, dtype,
          {{0, config.num_heads}, all_kv, {0, config.intermediate_size}, {0, config.vocab_size}},
          nullptr);
  report.duplicated_kv_bytes_per_token = total_kv - kv_bytes(config, dtype, all_kv);
  return report;
}

std::string to_text(const ModelReport& report) {
  const ModelConfig& config = report.config;
  const bool keeps_bits =
      report.ranks.front().cpu_weight_bytes != report.ranks.front().weight_bytes;
  std::ostringstream out;
  out << config.name << ": " << config.architecture << ", "
      << parameters_text(report.num_parameters) << " parameters, " << name(report.dtype) << "\n"
      << config.num_layers() << " layers of width " << config.hidden_size << ", "
      << config.num_heads << " query and " << config.num_kv_heads << " key-value heads of "
      << config.head_dim << ", MLP " << config.intermediate_size << ", vocabulary "
      << config.vocab_size << (config.tied_embeddings ? " (tied)" : "") << ", context "
      << config.max_position << "\n\nrank  " << std::left << std::setw(16) << "query heads"
      << std::setw(16) << "KV heads" << std::setw(22) << "MLP columns" << std::setw(26)
      << "vocabulary rows" << std::setw(12) << "weights";
  if (keeps_bits) out << std::setw(16) << "on CPU ranks";
  out << "KV per token\n";
  for (std::size_t rank = 0; rank < report.ranks.size(); ++rank) {
    const RankReport& item = report.ranks[rank];
    out << std::setw(6) << rank << std::setw(16) << range_text(item.q_heads) << std::setw(16)
        << range_text(item.kv_heads) << std::setw(22) << range_text(item.intermediate)
        << std::setw(26) << range_text(item.vocab) << std::setw(12)
        << bytes_text(item.weight_bytes);
    if (keeps_bits) out << std::setw(16) << bytes_text(item.cpu_weight_bytes);
    out << bytes_text(item.kv_bytes_per_token) << "\n";
  }
  out << "\n" << imbalance_text(report) << "\n";
  return out.str();
}

std::string imbalance_text(const ModelReport& report) {
  std::ostringstream out;
  out << "imbalance " << std::fixed << std::setprecision(3) << report.imbalance
      << " (largest rank's weights over the mean), duplicated: "
      << bytes_text(report.duplicated_bytes) << " of weights, "
      << bytes_text(report.duplicated_kv_bytes_per_token) << " of KV per token";
  return out.str();
}

json::object to_json(const ModelReport& report) {
  const ModelConfig& config = report.config;
  json::array ranks;
  for (const RankReport& item : report.ranks)
    ranks.push_back(json::object{{"q_heads", range_json(item.q_heads)},
                                 {"kv_heads", range_json(item.kv_heads)},
                                 {"intermediate", range_json(item.intermediate)},
                                 {"vocab", range_json(item.vocab)},
                                 {"weight_bytes", item.weight_bytes},
                                 {"cpu_weight_bytes", item.cpu_weight_bytes},
                                 {"kv_bytes_per_token", item.kv_bytes_per_token}});
  return {{"model", config.name},
          {"architecture", config.architecture},
          {"dtype", std::string(name(report.dtype))},
          {"parameters", report.num_parameters},
          {"layers", config.num_layers()},
          {"hidden_size", config.hidden_size},
          {"intermediate_size", config.intermediate_size},
          {"heads", config.num_heads},
          {"kv_heads", config.num_kv_heads},
          {"head_dim", config.head_dim},
          {"vocab_size", config.vocab_size},
          {"tied_embeddings", config.tied_embeddings},
          {"max_position", config.max_position},
          {"tensor_parallel_size", static_cast<std::int64_t>(report.ranks.size())},
          {"imbalance", report.imbalance},
          {"duplicated_bytes", report.duplicated_bytes},
          {"duplicated_kv_bytes_per_token", report.duplicated_kv_bytes_per_token},
          {"ranks", std::move(ranks)}};
}

}  // namespace tandem::runtime
