// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/gumbel.h"
#include "kernels/device/cpu/context.h"
#include "kernels/sample.h"

namespace tandem::kernels {
namespace {

bool larger(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

/// log(sum(exp(values)))
double log_sum_exp(const float* values, std::int64_t size) {
  const float maximum = *std::max_element(values, values + size);
  double sum = 0.0;
  for (std::int64_t i = 0; i < size; ++i) sum += std::exp(static_cast<double>(values[i]) - maximum);
  return maximum + std::log(sum);
}

void keep_top_k(std::vector<Candidate>& kept, std::int32_t k) {
  if (k <= 0 || static_cast<std::size_t>(k) >= kept.size()) return;
  std::nth_element(kept.begin(), kept.begin() + k, kept.end(), larger);
  kept.resize(static_cast<std::size_t>(k));
}

/// Softmax of the kept values, in their order.
std::vector<double> probabilities(const std::vector<Candidate>& kept) {
  double maximum = kept.front().value, sum = 0.0;
  for (const Candidate& c : kept) maximum = std::max<double>(maximum, c.value);
  std::vector<double> result;
  result.reserve(kept.size());
  for (const Candidate& c : kept) sum += result.emplace_back(std::exp(c.value - maximum));
  for (double& p : result) p /= sum;
  return result;
}

/// The fewest largest whose probabilities reach top_p.
void keep_top_p(std::vector<Candidate>& kept, float top_p) {
  if (top_p >= 1.0f) return;
  std::sort(kept.begin(), kept.end(), larger);
  const std::vector<double> p = probabilities(kept);
  double sum = 0.0;
  std::size_t count = 0;
  while (count < kept.size() && sum < top_p) sum += p[count++];
  kept.resize(std::max<std::size_t>(count, 1));
}

/// Locally typical sampling (Meister et al. 2022, arXiv 2202.00666): the fewest tokens whose
/// surprise is nearest to the entropy and whose probabilities reach typical_p.
void keep_typical(std::vector<Candidate>& kept, float typical_p) {
  if (typical_p >= 1.0f) return;
  std::sort(kept.begin(), kept.end(), larger);
  const std::vector<double> p = probabilities(kept);
  double entropy = 0.0;
  for (const double value : p)
    if (value > 0) entropy -= value * std::log(value);
  std::vector<std::size_t> order(kept.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto distance = [&](std::size_t i) { return std::abs(-std::log(p[i]) - entropy); };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return distance(a) < distance(b); });
  std::vector<Candidate> typical;
  double sum = 0.0;
  for (std::size_t i = 0; i < order.size() && (sum < typical_p || typical.empty()); ++i) {
    typical.push_back(kept[order[i]]);
    sum += p[order[i]];
  }
  kept = std::move(typical);
}

std::int32_t sample_row(const float* logits, std::int64_t size, const SlotParams& params,
                        std::int32_t position) {
  const float* largest = std::max_element(logits, logits + size);
  if (params.temperature <= 0.0f) return static_cast<std::int32_t>(largest - logits);
  const float maximum = *largest / params.temperature;
  const float floor = params.min_p > 0.0f ? maximum + std::log(params.min_p)
                                          : -std::numeric_limits<float>::infinity();
  std::vector<Candidate> kept;
  for (std::int64_t i = 0; i < size; ++i) {
    const float value = logits[i] / params.temperature;
    if (value >= floor && value > -std::numeric_limits<float>::infinity())
      kept.push_back({value, static_cast<std::int32_t>(i)});
  }
  if (kept.empty()) return static_cast<std::int32_t>(largest - logits);
  keep_top_k(kept, params.top_k);
  keep_top_p(kept, params.top_p);
  keep_typical(kept, params.typical_p);
  Candidate winner{-std::numeric_limits<float>::infinity(), kept.front().id};
  for (const Candidate& c : kept) {
    const Candidate noisy{c.value + cpu::gumbel(token_word(params.seed, position, c.id)), c.id};
    if (larger(noisy, winner)) winner = noisy;
  }
  return winner.id;
}

void write_logprobs(const float* logits, std::int64_t size, std::int32_t token, TokenLogprob* out) {
  const double total = log_sum_exp(logits, size);
  out[0] = {static_cast<float>(logits[token] - total), token};
  std::vector<Candidate> top;
  for (std::int64_t i = 0; i < size; ++i) top.push_back({logits[i], static_cast<std::int32_t>(i)});
  const auto count = std::min<std::int64_t>(kMaxLogprobs, size);
  std::partial_sort(top.begin(), top.begin() + count, top.end(), larger);
  for (std::int64_t i = 0; i < kMaxLogprobs; ++i)
    out[1 + i] = i < count ? TokenLogprob{static_cast<float>(top[i].value - total), top[i].id}
                           : TokenLogprob{-std::numeric_limits<float>::infinity(), -1};
}

}  // namespace

void join_shards(Context<Cpu>&, const JoinShardsArgs<Cpu>& args) {
  for (std::int32_t i = 0; i < args.num_samples; ++i)
    for (std::int32_t r = 0; r < args.ranks; ++r) {
      const float* shard = args.gathered + (std::int64_t{r} * args.num_samples + i) * args.width;
      std::copy_n(shard, args.vocab_begin[r + 1] - args.vocab_begin[r],
                  args.out.row(i) + args.vocab_begin[r]);
    }
}

void sample_full(Context<Cpu>&, const FullSampleArgs<Cpu>& args) {
#pragma omp parallel for
  for (std::int32_t i = 0; i < args.samples.num_samples; ++i) {
    const std::int32_t position = args.positions[args.samples.rows[i]];
    if (position < 0) continue;
    const SlotParams& params = args.slots.params[args.samples.slots[i]];
    args.tokens[i] = sample_row(args.logits.row(i), args.vocab_size, params, position + 1);
    if (args.logprobs != nullptr)
      write_logprobs(args.logits.row(i), args.vocab_size, args.tokens[i],
                     args.logprobs + std::int64_t{i} * (1 + kMaxLogprobs));
  }
}

void score(Context<Cpu>&, const ScoreArgs<Cpu>& args) {
#pragma omp parallel for
  for (std::int64_t i = 0; i < args.logits.rows; ++i)
    write_logprobs(args.logits.row(i), args.vocab_size, args.targets[i],
                   args.logprobs + i * (1 + kMaxLogprobs));
}

}  // namespace tandem::kernels
