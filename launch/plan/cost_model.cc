// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/cost_model.h"

#include <algorithm>
#include <utility>

#include "parallel/shard.h"
#include "runtime/model_report.h"

namespace tandem::launch {
namespace {

constexpr double kLogitBytes = 4;      // float
constexpr double kCandidateBytes = 8;  // a value and an id

/// The largest share of any rank: it is the one that the others wait for.
struct Share {
  double q_heads = 0, kv_heads = 0, intermediate = 0, vocab = 0;
  explicit Share(const PlannedModel& model) {
    const auto widen = [](double& value, const parallel::Range& range) {
      value = std::max(value, static_cast<double>(range.size()));
    };
    for (int rank = 0; rank < model.ranks; ++rank) {
      const parallel::Shard shard(runtime::shard_shape(model.config), rank, model.ranks);
      widen(q_heads, shard.q_heads());
      widen(kv_heads, shard.kv_heads());
      widen(intermediate, shard.intermediate());
      widen(vocab, shard.vocab());
    }
  }
};

/// What differs between decode and prefill.
struct Attention {
  double kv_tokens = 0;  ///< Keys that are read, over all sequences.
  double pairs = 0;      ///< (query, key) pairs that are computed.
  bool decode = true;
};

class StepBuilder {
 public:
  StepBuilder(const PlannedModel& model, const DeviceRates& rates, double rows)
      : model_(model),
        rates_(rates),
        share_(model),
        rows_(rows),
        layers_(static_cast<double>(model.config.num_layers())),
        hidden_(static_cast<double>(model.config.hidden_size)),
        dim_(static_cast<double>(model.config.head_dim)),
        element_(static_cast<double>(size_bytes(model.dtype))) {}

  StepCost build(const Attention& attention, double samples) {
    const double q = share_.q_heads * dim_, kv = share_.kv_heads * dim_;
    elementwise("embedding", 1, 2 * rows_ * hidden_ * element_);
    message("embedding, all-reduce", 1, rows_ * hidden_ * element_);
    column_matmul("queries, keys and values", layers_, (q + 2 * kv) * hidden_);
    attend(attention);
    row_matmul("attention output", layers_, q * hidden_);
    message("attention, all-reduce", layers_, rows_ * hidden_ * element_);
    column_matmul("MLP, gate and up", layers_, 2 * share_.intermediate * hidden_);
    row_matmul("MLP, down", layers_, share_.intermediate * hidden_);
    message("MLP, all-reduce", layers_, rows_ * hidden_ * element_);
    if (samples > 0) {
      const double rows = std::exchange(rows_, samples);
      column_matmul("head", 1, share_.vocab * hidden_);
      rows_ = rows;
      elementwise("choice of tokens", 1, samples * share_.vocab * kLogitBytes);
      message("choice of tokens, gather", 1, samples * kCandidateBytes);
    }
    if (rates_.plan_us > 0) cost_.lines.push_back({"plan of the step", 1, 0, 0, 0, rates_.plan_us});
    return std::move(cost_);
  }

 private:
  void matmul(const char* what, double count, double weights, const MatmulTimes& times) {
    const double bytes = weights * element_;
    cost_.lines.push_back({what, count, count * bytes, count * 2 * weights * rows_, 0,
                           count * times.at(rows_, bytes)});
  }
  void column_matmul(const char* what, double count, double weights) {
    matmul(what, count, weights, rates_.column_matmul);
  }
  void row_matmul(const char* what, double count, double weights) {
    matmul(what, count, weights, rates_.row_matmul);
  }
  void elementwise(const char* what, double count, double bytes) {
    cost_.lines.push_back({what, count, count * bytes, 0, 0, count * rates_.elementwise.at(bytes)});
  }
  void message(const char* what, double count, double bytes) {
    if (model_.ranks == 1) return;
    cost_.lines.push_back({what, count, 0, 0, count * bytes, count * rates_.all_reduce.at(bytes)});
  }
  /// A CPU rank takes head by head: the rate is that of the prompt's length, whatever their number.
  double prefill_attention_us(const Attention& attention, double flops) const {
    if (rates_.device == "cuda") return rates_.prefill_attention.at(flops);
    const double probed = attention.pairs * 4 * kCpuProbeWidth;
    return rates_.prefill_attention.at(probed) * flops / probed;
  }
  void attend(const Attention& attention) {
    const double bytes = attention.kv_tokens * 2 * share_.kv_heads * dim_ * element_;
    const double flops = attention.pairs * 4 * share_.q_heads * dim_;
    const double us = !attention.decode         ? prefill_attention_us(attention, flops)
                      : rates_.device == "cuda" ? rates_.decode_attention.at(bytes)
                                                : rates_.decode_attention.at(flops);
    cost_.lines.push_back(
        {"attention", layers_, layers_ * bytes, layers_ * flops, 0, layers_ * us});
  }

  const PlannedModel& model_;
  const DeviceRates& rates_;
  Share share_;
  double rows_, layers_, hidden_, dim_, element_;
  StepCost cost_;
};

template <typename F>
double sum(const std::vector<CostLine>& lines, F value) {
  double total = 0;
  for (const CostLine& line : lines) total += value(line);
  return total;
}

}  // namespace

double StepCost::us() const {
  return sum(lines, [](const CostLine& line) { return line.us; });
}

double StepCost::message_us() const {
  return sum(lines, [](const CostLine& line) { return line.message_bytes > 0 ? line.us : 0; });
}

double StepCost::bytes() const {
  return sum(lines, [](const CostLine& line) { return line.bytes; });
}

double StepCost::flops() const {
  return sum(lines, [](const CostLine& line) { return line.flops; });
}

double StepCost::floor_us(const DeviceRates& rates) const {
  return sum(lines, [&](const CostLine& line) {
    return std::max(line.bytes / rates.read_gb_per_s / 1e3, line.flops / rates.matmul_tflops / 1e6);
  });
}

StepCost decode_cost(const PlannedModel& model, const DeviceRates& rates, double batch,
                     double context) {
  return StepBuilder(model, rates, batch).build({batch * context, batch * context, true}, batch);
}

StepCost prefill_cost(const PlannedModel& model, const DeviceRates& rates, double tokens,
                      double before, bool last) {
  const double pairs = tokens * before + tokens * (tokens + 1) / 2;
  return StepBuilder(model, rates, tokens).build({before + tokens, pairs, false}, last ? 1 : 0);
}

double ttft_ms(const PlannedModel& model, const DeviceRates& rates, double tokens,
               double step_tokens) {
  double us = 0;
  for (double before = 0; before < tokens;) {
    const double now = std::min(step_tokens, tokens - before);
    us += prefill_cost(model, rates, now, before, before + now >= tokens).us();
    before += now;
  }
  return us / 1000;
}

double tpot_ms(const PlannedModel& model, const DeviceRates& rates, double batch, double input_len,
               double output_len) {
  return decode_cost(model, rates, batch, input_len + output_len / 2).us() / 1000;
}

}  // namespace tandem::launch
