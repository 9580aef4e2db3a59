// SPDX-License-Identifier: Apache-2.0
// CPU attention over a paged cache against softmax in double; and the exponential under it.
#include "kernels/attend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/cpu/few_queries.h"
#include "kernels/device/cpu/context.h"

namespace tandem::kernels {
namespace {

struct Problem {
  std::vector<std::int32_t> slots, positions;
  std::vector<std::int32_t> kv_head_of_q;
  std::int32_t dim = 64, window = 0;
  float softcap = 0;
};

/// A cache of two layers whose chunks are NaN beyond each sequence's last position.
class Attention : public ::testing::Test {
 protected:
  static constexpr std::int32_t kStride = 6, kChunks = 14;
  const std::vector<std::int32_t> table_ = {7, 3, 11, 1, 5, 12, 2, 9, 4, 10, 6, 13};

  void expect_close(const Problem& p) {
    kv_heads_ = p.kv_head_of_q.back() + 1;
    dim_ = p.dim;
    const auto heads = static_cast<std::int32_t>(p.kv_head_of_q.size());
    const auto rows = static_cast<std::int32_t>(p.positions.size());
    std::mt19937 generator(5);
    std::normal_distribution<float> normal;
    cache_.assign(static_cast<std::size_t>(kChunks) * 2 * layer(), std::nanf(""));
    for (std::int32_t slot = 0; slot < 2; ++slot)
      for (std::int32_t at = 0; at <= last_position(p, slot); ++at)
        for (std::int32_t kind = 0; kind < 2; ++kind)
          for (std::int32_t head = 0; head < kv_heads_; ++head)
            for (std::int32_t d = 0; d < dim_; ++d)
              element(slot, at, kind, head, d) = normal(generator);
    std::vector<float> q(static_cast<std::size_t>(rows) * heads * dim_), out(q.size(), NAN);
    for (float& value : q) value = normal(generator);

    StepView<Cpu> step;
    step.num_tokens = rows;
    step.positions = p.positions.data();
    step.slots = p.slots.data();
    AttendArgs<float, Cpu> args;
    args.step = &step;
    args.q = TensorView<const float, Cpu>(q.data(), rows, heads * dim_);
    args.kv = {cache_.data(), 2 * layer(), layer(), kv_heads_, dim_, table_.data(), kStride};
    args.kv_head_of_q = p.kv_head_of_q.data();
    args.num_q_heads = heads;
    args.layer = 1;
    args.scale = 0.3f;
    args.softcap = p.softcap;
    args.window = p.window;
    args.out = TensorView<float, Cpu>(out.data(), rows, heads * dim_);
    Context<Cpu> ctx(2);
    attend(ctx, args);
    for (std::int32_t row = 0; row < rows; ++row)
      for (std::int32_t head = 0; head < heads; ++head)
        expect_head(p, row, head, q.data() + (row * heads + head) * dim_,
                    out.data() + (row * heads + head) * dim_);
  }

 private:
  std::int64_t layer() const { return std::int64_t{2} * kv_heads_ * kChunkTokens * dim_; }
  float& element(std::int32_t slot, std::int32_t at, std::int32_t kind, std::int32_t head,
                 std::int32_t d) {
    const std::int64_t chunk = table_[static_cast<std::size_t>(slot * kStride + at / kChunkTokens)];
    return cache_[static_cast<std::size_t>(
        (chunk * 2 + 1) * layer() +
        ((std::int64_t{kind} * kv_heads_ + head) * kChunkTokens + at % kChunkTokens) * dim_ + d)];
  }
  static std::int32_t last_position(const Problem& p, std::int32_t slot) {
    std::int32_t last = -1;
    for (std::size_t i = 0; i < p.slots.size(); ++i)
      if (p.slots[i] == slot) last = std::max(last, p.positions[i]);
    return last;
  }
  void expect_head(const Problem& p, std::int32_t row, std::int32_t head, const float* q,
                   const float* out) {
    const std::int32_t slot = p.slots[static_cast<std::size_t>(row)];
    const std::int32_t at = p.positions[static_cast<std::size_t>(row)];
    const std::int32_t kv_head = p.kv_head_of_q[static_cast<std::size_t>(head)];
    double sum = at < 0 ? 1 : 0;
    std::vector<double> value(static_cast<std::size_t>(dim_));
    for (std::int32_t key = p.window > 0 ? std::max(0, at + 1 - p.window) : 0; key <= at; ++key) {
      double score = 0;
      for (std::int32_t i = 0; i < dim_; ++i)
        score += double{q[i]} * double{element(slot, key, 0, kv_head, i)};
      score *= 0.3f;
      if (p.softcap > 0) score = p.softcap * std::tanh(score / p.softcap);
      sum += std::exp(score);
      for (std::int32_t d = 0; d < dim_; ++d)
        value[static_cast<std::size_t>(d)] +=
            std::exp(score) * double{element(slot, key, 1, kv_head, d)};
    }
    for (std::int32_t d = 0; d < dim_; ++d)
      ASSERT_NEAR(out[d], value[static_cast<std::size_t>(d)] / sum, 2e-5)
          << "row " << row << " head " << head << " dim " << d;
  }

  std::vector<float> cache_;
  std::int32_t kv_heads_ = 1, dim_ = 64;
};

/// Decode rows of both slots and an inert row, then a prefill segment that crosses chunks.
Problem mixed(std::int32_t dim, std::vector<std::int32_t> kv_head_of_q) {
  Problem p{{0, 1, 0}, {63, 200, -1}, std::move(kv_head_of_q), dim};
  for (std::int32_t at = 201; at < 290; ++at) {
    p.slots.push_back(1);
    p.positions.push_back(at);
  }
  return p;
}

TEST_F(Attention, EqualsSoftmaxInDouble) {
  expect_close(mixed(64, {0, 0, 0, 1, 1, 1}));
  expect_close(mixed(40, {0, 1}));
  expect_close(mixed(16, {0, 0, 1, 1, 1, 2}));
  expect_close({{0}, {0}, {0}, 128});
}

TEST_F(Attention, WindowsAndSoftCaps) {
  for (const std::int32_t window : {1, 9, 64, 100}) {
    Problem p = mixed(32, {0, 0, 1, 1});
    p.window = window;
    p.softcap = window == 9 ? 1.5f : 0.0f;
    expect_close(p);
  }
}

/// Decode: parts of four queries and what is left, and dimensions that fill no whole tile.
TEST_F(Attention, FewQueries) {
  expect_close({{0, 1}, {70, 200}, {0, 0, 0, 0, 0, 0, 0}, 64});
  expect_close({{0, 1}, {63, 64}, {0, 0, 0, 0, 0, 1, 1}, 72});
  Problem p{{0, 1}, {130, 5}, {0, 0, 0, 0, 1}, 128};
  p.window = 67;
  expect_close(p);
}

/// Eight at once are what one after the other is: rounding, infinity and NaN.
template <typename T>
void expect_floats() {
  const cpu::Floats values{1.0f, -3.14159f, 65280.7f, 1e-39f, INFINITY, -INFINITY, NAN, 3.4e38f};
  T stored[cpu::kFloats];
  cpu::store_floats(stored, values);
  const cpu::Floats loaded = cpu::load_floats(stored);
  for (int i = 0; i < cpu::kFloats; ++i) {
    const T want(values[i]);
    EXPECT_EQ(std::memcmp(&stored[i], &want, sizeof want), 0) << i;
    const float value = static_cast<float>(want);
    EXPECT_TRUE(loaded[i] == value || (std::isnan(loaded[i]) && std::isnan(value))) << i;
  }
}

TEST(VecElement, ConvertsLikeOneElement) {
  expect_floats<float>();
  expect_floats<BFloat16>();
  expect_floats<Float16>();
}

TEST(FewQueries, SumsOfEightVectors) {
  cpu::Floats x[cpu::kFloats];
  for (int i = 0; i < cpu::kFloats; ++i)
    for (int lane = 0; lane < cpu::kFloats; ++lane)
      x[i][lane] = static_cast<float>(1 << lane) * (i % 2 == 0 ? 1.0f : -1.0f) + i;
  const cpu::Floats sums = cpu::sums_of(x);
  for (int i = 0; i < cpu::kFloats; ++i)
    EXPECT_EQ(sums[i], (i % 2 == 0 ? 255.0f : -255.0f) + 8 * static_cast<float>(i)) << i;
}

float exponential(float x) { return cpu::exponential(cpu::splat(x))[3]; }

TEST(Exponential, IsWithinTwoUnitsInTheLastPlace) {
  for (float x = -87.0f; x < 88.7f; x += 0.00371f) {
    const double want = std::exp(double{x});
    ASSERT_NEAR(exponential(x), want, 2.4e-7 * want) << x;
  }
  EXPECT_EQ(exponential(0.0f), 1.0f);
  EXPECT_LT(exponential(-1e30f), 1.3e-38f);
  EXPECT_GT(exponential(1e30f), 3e38f);
  EXPECT_TRUE(std::isnan(exponential(std::nanf(""))));
}

}  // namespace
}  // namespace tandem::kernels
