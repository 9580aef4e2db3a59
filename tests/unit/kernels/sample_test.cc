// SPDX-License-Identifier: Apache-2.0
// Sampled tokens against exact probabilities, computed here from the definitions in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "kernels/cpu/gumbel.h"
#include "kernels/philox.h"
#include "unit/kernels/sampling_problem.h"

namespace tandem::kernels {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

/// Peaked, with close neighbours, one equal pair and one token that is forbidden.
const std::vector<float> kLogits = {1.0f, 3.2f, -0.5f, 2.7f,  0.3f, kForbidden,
                                    2.1f, 0.3f, -4.0f, 1.65f, 2.9f, 0.9f};

void normalise(std::map<int, double>& p) {
  double sum = 0;
  for (const auto& entry : p) sum += entry.second;
  for (auto& entry : p) entry.second /= sum;
}

std::vector<int> by_probability(const std::map<int, double>& p) {
  std::vector<int> order;
  for (const auto& entry : p) order.push_back(entry.first);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return p.at(a) > p.at(b); });
  return order;
}

void keep_first(std::map<int, double>& p, const std::vector<int>& order, double mass) {
  std::map<int, double> kept;
  double sum = 0;
  for (const int token : order) {
    if (sum >= mass) break;
    kept[token] = p[token];
    sum += p[token];
  }
  p = std::move(kept);
}

/// What a token's probability must be.
std::map<int, double> exact(const std::vector<float>& logits, const SlotParams& params) {
  std::map<int, double> p;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (std::isfinite(logits[i]))
      p[static_cast<int>(i)] = std::exp(double{logits[i]} / params.temperature);
  normalise(p);
  const double largest = p[by_probability(p)[0]];
  std::erase_if(p, [&](const auto& entry) { return entry.second < params.min_p * largest; });
  normalise(p);
  if (params.top_k > 0) {
    const auto order = by_probability(p);
    for (std::size_t i = static_cast<std::size_t>(params.top_k); i < order.size(); ++i)
      p.erase(order[i]);
    normalise(p);
  }
  if (params.top_p < 1) keep_first(p, by_probability(p), params.top_p);
  normalise(p);
  if (params.typical_p < 1) {
    double entropy = 0;
    for (const auto& entry : p) entropy -= entry.second * std::log(entry.second);
    auto order = by_probability(p);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return std::abs(std::log(p[a]) + entropy) < std::abs(std::log(p[b]) + entropy);
    });
    keep_first(p, order, params.typical_p);
    normalise(p);
  }
  return p;
}

/// Pearson's statistic must stay below the value that chance exceeds once in 10,000 runs
/// (Wilson and Hilferty's approximation). The draws are deterministic, so the test is too.
void expect_distribution(const std::vector<std::int32_t>& tokens, const std::map<int, double>& p) {
  std::map<int, double> counts;
  for (const std::int32_t token : tokens) {
    ASSERT_TRUE(p.contains(token)) << "token " << token << " is not in the support";
    ++counts[token];
  }
  double statistic = 0;
  for (const auto& [token, probability] : p) {
    const double expected = probability * static_cast<double>(tokens.size());
    statistic += (counts[token] - expected) * (counts[token] - expected) / expected;
  }
  const double freedom = static_cast<double>(p.size()) - 1;
  if (freedom == 0) return;
  const double spread = 2 / (9 * freedom);
  EXPECT_LT(statistic, freedom * std::pow(1 - spread + 3.72 * std::sqrt(spread), 3));
}

SlotParams with(
    float temperature, void (*change)(SlotParams&) = [](SlotParams&) {}) {
  SlotParams params;
  params.temperature = temperature;
  params.seed = 0x1234567890abcdefull;
  change(params);
  return params;
}

// Known answers of the Random123 library for philox4x32-10.
TEST(Philox, GivesThePublishedWords) {
  const auto words = [](const PhiloxBlock& block) {
    return std::vector<std::uint32_t>(block.word, block.word + 4);
  };
  EXPECT_EQ(words(philox(0, 0, 0)),
            (std::vector<std::uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words(philox(~0ull, ~0u, ~0u, ~0u, ~0u)),
            (std::vector<std::uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words(philox(0x299f31d0a4093822ull, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344)),
            (std::vector<std::uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Gumbel, HasItsMeanVarianceAndBound) {
  double sum = 0, squares = 0;
  constexpr int kCount = 400000;
  for (int i = 0; i < kCount; ++i) {
    const double g = cpu::gumbel(token_word(7, i / 1000, i % 1000));
    sum += g;
    squares += g * g;
  }
  const double mean = sum / kCount;
  EXPECT_NEAR(mean, 0.5772156649, 0.01);
  EXPECT_NEAR(squares / kCount - mean * mean, 1.6449340668, 0.02);
  EXPECT_LT(cpu::gumbel(0), kMaxGumbel);
  EXPECT_GT(cpu::gumbel(0xffffffffu), -4.0f);
}

TEST(Sample, GreedyTakesTheFirstLargest) {
  for (const std::vector<std::int64_t>& begins :
       {std::vector<std::int64_t>{0}, {0, 4}, {0, 2, 3}, {0, 3, 9, 10}}) {
    SamplingProblem problem({1, 5, 2, 5, 5, -1}, 2, with(0));
    EXPECT_EQ(problem.sample_shards(begins), (std::vector<std::int32_t>{1, 1}));
  }
  SamplingProblem problem({1, 5, 2, 5, 5, -1}, 2, with(0));
  EXPECT_EQ(problem.sample_whole_rows(), (std::vector<std::int32_t>{1, 1}));
}

TEST(Sample, TemperatureFollowsSoftmaxAndShardsDoNotMatter) {
  for (const float temperature : {0.3f, 1.0f, 2.5f}) {
    SamplingProblem problem(kLogits, 40000, with(temperature));
    const auto whole = problem.sample_whole_rows();
    expect_distribution(whole, exact(kLogits, problem.params[0]));
    EXPECT_EQ(problem.sample_shards({0}), whole);
    EXPECT_EQ(problem.sample_shards({0, 5}), whole);
    EXPECT_EQ(problem.sample_shards({0, 1, 7, 12}), whole);
  }
}

TEST(Sample, FiltersLeaveExactDistributions) {
  const std::vector<SlotParams> cases = {
      with(1, [](SlotParams& p) { p.top_k = 1; }),
      with(1, [](SlotParams& p) { p.top_k = 4; }),
      with(1, [](SlotParams& p) { p.top_k = 100; }),
      with(0.8f, [](SlotParams& p) { p.top_p = 0.75f; }),
      with(1, [](SlotParams& p) { p.top_p = 0.01f; }),
      with(1.5f, [](SlotParams& p) { p.min_p = 0.2f; }),
      with(1, [](SlotParams& p) { p.min_p = 1.0f; }),
      with(1, [](SlotParams& p) { p.typical_p = 0.4f; }),
      with(1, [](SlotParams& p) { p.typical_p = 0.9f; }),
      with(1.2f, [](SlotParams& p) { p.top_k = 6, p.top_p = 0.8f; }),
      with(1.2f, [](SlotParams& p) { p.min_p = 0.1f, p.top_k = 8, p.top_p = 0.9f; }),
      with(2, [](SlotParams& p) { p.min_p = 0.1f, p.top_p = 0.9f, p.typical_p = 0.7f; }),
  };
  for (const SlotParams& params : cases) {
    SCOPED_TRACE(testing::Message()
                 << "T " << params.temperature << " k " << params.top_k << " p " << params.top_p
                 << " min_p " << params.min_p << " typical " << params.typical_p);
    SamplingProblem problem(kLogits, 20000, params);
    expect_distribution(problem.sample_whole_rows(), exact(kLogits, params));
  }
}

TEST(Sample, DependsOnSeedAndPositionOnly) {
  SamplingProblem problem(kLogits, 64, with(1.0f));
  const auto tokens = problem.sample_whole_rows();
  EXPECT_GT(std::set<std::int32_t>(tokens.begin(), tokens.end()).size(), 3u);

  SamplingProblem moved(kLogits, 1, problem.params[0]);  // alone, in another slot and row
  moved.params.insert(moved.params.begin(), with(9));
  moved.slots[0] = 1;
  moved.positions = {-1, -1, 17};
  moved.rows = {2};
  EXPECT_EQ(moved.sample_whole_rows()[0], tokens[17]);
  EXPECT_EQ(moved.sample_shards({0, 6})[0], tokens[17]);

  problem.params[0].seed ^= 1;
  EXPECT_NE(problem.sample_whole_rows(), tokens);
}

TEST(Sample, LogprobsAreTheLogSoftmaxBeforeTemperature) {
  const std::vector<float> logits = {0.5f, 2.0f, kForbidden, 2.0f, -1.0f};
  SamplingProblem problem(logits, 3, with(0.7f, [](SlotParams& p) { p.top_k = 2; }));
  std::vector<TokenLogprob> found(3 * (1 + kMaxLogprobs));
  std::vector<float> rows;
  for (int i = 0; i < 3; ++i) rows.insert(rows.end(), logits.begin(), logits.end());
  std::vector<std::int32_t> tokens(3);
  FullSampleArgs<Cpu> args;
  args.samples = problem.samples();
  args.positions = problem.positions.data();
  args.slots = problem.slot_view();
  args.logits = {rows.data(), 3, 5};
  args.vocab_size = 5;
  args.tokens = tokens.data();
  args.logprobs = found.data();
  sample_full(problem.context, args);

  const double total = std::log(std::exp(0.5) + 2 * std::exp(2.0) + std::exp(-1.0));
  const std::vector<int> order = {1, 3, 0, 4, 2};  // equal logits by id
  for (int i = 0; i < 3; ++i) {
    const TokenLogprob* row = found.data() + i * (1 + kMaxLogprobs);
    EXPECT_EQ(row[0].id, tokens[i]);
    EXPECT_NEAR(row[0].logprob, 2.0 - total, 1e-6);
    for (int j = 0; j < 5; ++j) {
      EXPECT_EQ(row[1 + j].id, order[j]);
      if (j < 4) {
        EXPECT_NEAR(row[1 + j].logprob, logits[order[j]] - total, 1e-6);
      }
    }
    EXPECT_EQ(row[5].logprob, kForbidden);
    for (int j = 5; j < kMaxLogprobs; ++j) EXPECT_EQ(row[1 + j].id, -1);
  }
}

}  // namespace
}  // namespace tandem::kernels
