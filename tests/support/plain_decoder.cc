// SPDX-License-Identifier: Apache-2.0
#include "tests/support/plain_decoder.h"

#include <algorithm>
#include <cmath>

#include "runtime/rope_table.h"
#include "runtime/weights/tensor_names.h"

namespace tandem::testing {
namespace {

using runtime::LayerTensor;
using runtime::TensorSlice;
using Row = std::vector<float>;
using Rows = std::vector<Row>;

class Decoder {
 public:
  Decoder(const runtime::ModelConfig& config, const runtime::Checkpoint& checkpoint)
      : config_(config), checkpoint_(checkpoint), names_(config) {
    for (const runtime::RopeConfig& rope : config.ropes)
      tables_.push_back(runtime::make_rope_table(rope, config.max_position));
  }

  Rows run(const std::vector<std::int32_t>& tokens) {
    Rows x;
    for (std::int32_t token : tokens) {
      TensorSlice row = names_.embedding();
      row.row_begin = token;
      row.rows = 1;
      x.push_back(load(row));
      for (float& value : x.back()) value *= config_.embedding_scale;
    }
    for (std::int64_t layer = 0; layer < config_.num_layers(); ++layer) {
      add(x, attention(layer, normed(x, names_.layer(layer, LayerTensor::kAttentionNorm))),
          names_.layer(layer, LayerTensor::kAttentionPostNorm));
      add(x, mlp(layer, normed(x, names_.layer(layer, LayerTensor::kMlpNorm))),
          names_.layer(layer, LayerTensor::kMlpPostNorm));
    }
    Rows logits = project(normed(x, names_.final_norm()), names_.head(), {});
    for (Row& row : logits)
      for (float& value : row) value = capped(value * config_.logit_scale, config_.final_softcap);
    return logits;
  }

 private:
  Row load(const TensorSlice& slice) const {
    Row out(static_cast<std::size_t>(slice.rows * std::max<std::int64_t>(slice.cols, 1)));
    const runtime::TensorEntry& entry = checkpoint_.at(slice.name);
    if (slice.cols == 0)
      checkpoint_.read(entry, 0, 1, slice.row_begin, slice.rows, out.data(), slice.rows);
    else
      checkpoint_.read(entry, slice.row_begin, slice.rows, 0, slice.cols, out.data(), slice.cols);
    return out;
  }

  static float capped(float value, float cap) {
    return cap > 0 ? cap * std::tanh(value / cap) : value;
  }

  /// y = x W^T + b
  Rows project(const Rows& x, const TensorSlice& weight, const TensorSlice& bias) const {
    const Row w = load(weight);
    const Row b = bias ? load(bias) : Row(static_cast<std::size_t>(weight.rows));
    Rows out;
    for (const Row& row : x) {
      Row y = b;
      for (std::size_t n = 0; n < y.size(); ++n) {
        double sum = 0;
        for (std::size_t k = 0; k < row.size(); ++k)
          sum += double{row[k]} * double{w[n * row.size() + k]};
        y[n] += static_cast<float>(sum);
      }
      out.push_back(std::move(y));
    }
    return out;
  }

  void norm(float* x, std::size_t count, const float* weight) const {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += double{x[i]} * double{x[i]};
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(count) + config_.norm_eps);
    for (std::size_t i = 0; i < count; ++i)
      x[i] = static_cast<float>(x[i] * scale * (weight[i] + (config_.norm_plus_one ? 1.0f : 0.0f)));
  }

  Rows normed(Rows x, const TensorSlice& weight) const {
    if (!weight) return x;
    const Row w = load(weight);
    for (Row& row : x) norm(row.data(), row.size(), w.data());
    return x;
  }

  void add(Rows& x, Rows branch, const TensorSlice& post_norm) const {
    branch = normed(std::move(branch), post_norm);
    for (std::size_t i = 0; i < x.size(); ++i)
      for (std::size_t k = 0; k < x[i].size(); ++k)
        x[i][k] += config_.residual_scale * branch[i][k];
  }

  /// Norm over each head, or over all heads at once.
  void qk_norm(Rows& x, const TensorSlice& weight) const {
    if (!weight) return;
    const Row w = load(weight);
    for (Row& row : x)
      for (std::size_t at = 0; at < row.size(); at += w.size())
        norm(row.data() + at, w.size(), w.data());
  }

  void rotate(Rows& x, int rope) const {
    if (rope < 0) return;
    const runtime::HostRopeTable& table = tables_[static_cast<std::size_t>(rope)];
    const auto half =
        static_cast<std::size_t>(config_.ropes[static_cast<std::size_t>(rope)].rotary_dim / 2);
    const auto dim = static_cast<std::size_t>(config_.head_dim);
    for (std::size_t position = 0; position < x.size(); ++position)
      for (std::size_t head = 0; head < x[position].size(); head += dim)
        for (std::size_t i = 0; i < half; ++i) {
          float &a = x[position][head + i], &b = x[position][head + i + half];
          const float cos = table.cos[position * half + i], sin = table.sin[position * half + i];
          const float rotated = a * cos - b * sin;
          b = b * cos + a * sin;
          a = rotated;
        }
  }

  Rows attention(std::int64_t layer, const Rows& x) const {
    const auto tensor = [&](LayerTensor which) { return names_.layer(layer, which); };
    const runtime::LayerConfig& at = config_.layers[static_cast<std::size_t>(layer)];
    Rows q = project(x, tensor(LayerTensor::kQ), tensor(LayerTensor::kQBias));
    Rows k = project(x, tensor(LayerTensor::kK), tensor(LayerTensor::kKBias));
    const Rows v = project(x, tensor(LayerTensor::kV), tensor(LayerTensor::kVBias));
    qk_norm(q, tensor(LayerTensor::kQNorm));
    qk_norm(k, tensor(LayerTensor::kKNorm));
    rotate(q, at.rope);
    rotate(k, at.rope);
    Rows out;
    for (std::size_t p = 0; p < x.size(); ++p) {
      Row row(q[p].size());
      for (std::int64_t head = 0; head < config_.num_heads; ++head)
        attend(q[p], k, v, p, head, at.sliding_window, row);
      out.push_back(std::move(row));
    }
    return project(out, tensor(LayerTensor::kO), tensor(LayerTensor::kOBias));
  }

  /// One query head at position p, over the keys that it may see.
  void attend(const Row& q, const Rows& k, const Rows& v, std::size_t p, std::int64_t head,
              std::int64_t window, Row& out) const {
    const std::int64_t dim = config_.head_dim, group = config_.num_heads / config_.num_kv_heads;
    const auto q_at = static_cast<std::size_t>(head * dim);
    const auto kv_at = static_cast<std::size_t>(head / group * dim);
    const double scale = config_.attention_scale > 0 ? double{config_.attention_scale}
                                                     : 1.0 / std::sqrt(static_cast<double>(dim));
    const auto last = static_cast<std::int64_t>(p);
    const std::int64_t first = window > 0 ? std::max<std::int64_t>(0, last + 1 - window) : 0;
    std::vector<double> weights;
    double sum = 0;
    for (std::int64_t j = first; j <= last; ++j) {
      double score = 0;
      for (std::size_t i = 0; i < static_cast<std::size_t>(dim); ++i)
        score += double{q[q_at + i]} * double{k[static_cast<std::size_t>(j)][kv_at + i]};
      weights.push_back(capped(static_cast<float>(score * scale), config_.attention_softcap));
    }
    const double largest = *std::max_element(weights.begin(), weights.end());
    for (double& weight : weights) sum += weight = std::exp(weight - largest);
    for (std::int64_t j = first; j <= last; ++j)
      for (std::size_t i = 0; i < static_cast<std::size_t>(dim); ++i)
        out[q_at + i] += static_cast<float>(weights[static_cast<std::size_t>(j - first)] / sum *
                                            v[static_cast<std::size_t>(j)][kv_at + i]);
  }

  float activate(float x) const {
    switch (config_.activation) {
      case runtime::Activation::kSilu:
        return x / (1 + std::exp(-x));
      case runtime::Activation::kGelu:
        return 0.5f * x * (1 + std::erf(x / std::sqrt(2.0f)));
      case runtime::Activation::kGeluTanh:
        return 0.5f * x * (1 + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
    }
    return 0;
  }

  Rows mlp(std::int64_t layer, const Rows& x) const {
    const auto tensor = [&](LayerTensor which) { return names_.layer(layer, which); };
    Rows gate = project(x, tensor(LayerTensor::kGate), tensor(LayerTensor::kGateBias));
    const Rows up = project(x, tensor(LayerTensor::kUp), tensor(LayerTensor::kUpBias));
    for (std::size_t i = 0; i < gate.size(); ++i)
      for (std::size_t k = 0; k < gate[i].size(); ++k) gate[i][k] = activate(gate[i][k]) * up[i][k];
    return project(gate, tensor(LayerTensor::kDown), tensor(LayerTensor::kDownBias));
  }

  const runtime::ModelConfig& config_;
  const runtime::Checkpoint& checkpoint_;
  runtime::TensorNames names_;
  std::vector<runtime::HostRopeTable> tables_;
};

}  // namespace

std::vector<std::vector<float>> plain_logits(const runtime::ModelConfig& config,
                                             const runtime::Checkpoint& checkpoint,
                                             const std::vector<std::int32_t>& tokens) {
  return Decoder(config, checkpoint).run(tokens);
}

}  // namespace tandem::testing
