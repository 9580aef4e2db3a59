// SPDX-License-Identifier: Apache-2.0
// Penalties, n-gram bans, minimum length and biases against values worked out by hand, on whole
// rows and on every way to cut the vocabulary in two.
#include <gtest/gtest.h>

#include <limits>

#include "kernels/device/cpu/context.h"
#include "kernels/sample.h"

namespace tandem::kernels {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();
const std::vector<float> kLogits = {2, -2, 1, 0.5f, -1, 4};

struct Bias {
  std::vector<std::int32_t> ids;
  std::vector<float> values;
  bool exclusive = false;
  std::vector<std::vector<std::int32_t>> words = {};
};

/// Logits of slot 1 after `process_logits`, for a sequence whose tokens so far are `history`.
std::vector<float> process(const SlotParams& params, std::vector<std::int32_t> history,
                           const Bias& bias = {}, std::int64_t cut = 0) {
  Context<Cpu> context(1);
  const auto length = static_cast<std::int32_t>(history.size());
  std::vector<SlotParams> slots = {SlotParams{}, params};
  std::vector<std::int32_t> table(history.size(), 0);  // slot 0's history must not be read
  table.insert(table.end(), history.begin(), history.end());
  const std::int32_t row = 0, slot = 1, position = length - 1;
  const auto count = static_cast<std::int32_t>(bias.ids.size());
  const std::int32_t begin[] = {0, 0, count};
  const std::uint8_t exclusive[] = {0, static_cast<std::uint8_t>(bias.exclusive)};
  const std::int32_t word_begin[] = {0, 0, static_cast<std::int32_t>(bias.words.size())};
  std::vector<std::int32_t> word_tokens{0}, words;
  for (const auto& word : bias.words) {
    words.insert(words.end(), word.begin(), word.end());
    word_tokens.push_back(static_cast<std::int32_t>(words.size()));
  }
  std::vector<float> logits = kLogits;
  const auto run = [&](std::int64_t first, std::int64_t last) {
    if (first == last) return;
    ShardArgs<Cpu> args;
    args.samples = {1, &row, &slot};
    args.positions = &position;
    args.slots.num_slots = 2;
    args.slots.params = slots.data();
    args.slots.history = table.data();
    args.slots.history_stride = length;
    args.logits = {logits.data() + first, 1, last - first};
    args.vocab_begin = first;
    args.vocab_size = static_cast<std::int64_t>(logits.size());
    process_logits(context, args,
                   {begin, bias.ids.data(), bias.values.data(), exclusive, word_begin,
                    word_tokens.data(), words.data()});
  };
  run(0, cut);
  run(cut, static_cast<std::int64_t>(logits.size()));
  return logits;
}

void expect_for_all_cuts(const SlotParams& params, const std::vector<std::int32_t>& history,
                         const Bias& bias, const std::vector<float>& expected) {
  for (std::int64_t cut = 0; cut < 6; ++cut) {
    const auto found = process(params, history, bias, cut);
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_FLOAT_EQ(found[i], expected[i]) << "token " << i << ", cut at " << cut;
  }
}

TEST(ProcessLogits, DefaultsChangeNothing) { expect_for_all_cuts({}, {0, 1, 2}, {}, kLogits); }

// Prompt 0 1 1, answer 2 4 2: repetition looks at all, presence and frequency at the answer.
TEST(ProcessLogits, PenaltiesAreThoseOfVllm) {
  SlotParams params;
  params.prompt_tokens = 3;
  params.repetition_penalty = 2;
  const std::vector<std::int32_t> history = {0, 1, 1, 2, 4, 2};
  expect_for_all_cuts(params, history, {}, {1, -4, 0.5f, 0.5f, -2, 4});
  params.repetition_penalty = 1;
  params.presence_penalty = 0.25f;
  expect_for_all_cuts(params, history, {}, {2, -2, 0.75f, 0.5f, -1.25f, 4});
  params.presence_penalty = 0;
  params.frequency_penalty = 0.25f;
  expect_for_all_cuts(params, history, {}, {2, -2, 0.5f, 0.5f, -1.25f, 4});
  params.repetition_penalty = 2;
  params.presence_penalty = -1;
  expect_for_all_cuts(params, history, {}, {1, -4, 1, 0.5f, -1.25f, 4});
}

TEST(ProcessLogits, ForbidsRepeatedNgrams) {
  SlotParams params;
  params.prompt_tokens = 2;
  params.no_repeat_ngram = 1;
  expect_for_all_cuts(params, {3, 5, 3}, {}, {2, -2, 1, kForbidden, -1, kForbidden});
  params.no_repeat_ngram = 2;  // after 3 came 5 and 0
  expect_for_all_cuts(params, {3, 5, 3, 0, 3}, {}, {kForbidden, -2, 1, 0.5f, -1, kForbidden});
  params.no_repeat_ngram = 3;  // "1 2" came once, before 4
  expect_for_all_cuts(params, {1, 2, 4, 2, 1, 2}, {}, {2, -2, 1, 0.5f, kForbidden, 4});
  expect_for_all_cuts(params, {1, 2}, {}, kLogits);  // too short to hold one
}

TEST(ProcessLogits, KeepsStopTokensAwayUntilMinTokens) {
  SlotParams params;
  params.prompt_tokens = 2;
  params.min_tokens = 2;
  params.num_stop_ids = 2;
  params.stop_ids[0] = 5;
  params.stop_ids[1] = 0;
  const std::vector<float> kept = {kForbidden, -2, 1, 0.5f, -1, kForbidden};
  expect_for_all_cuts(params, {1, 1}, {}, kept);
  expect_for_all_cuts(params, {1, 1, 3}, {}, kept);
  expect_for_all_cuts(params, {1, 1, 3, 3}, {}, kLogits);
}

TEST(ProcessLogits, AddsBiasesAndKeepsOnlyAllowedTokens) {
  expect_for_all_cuts({}, {0}, {{5, 1}, {-3, kForbidden}}, {2, kForbidden, 1, 0.5f, -1, 1});
  expect_for_all_cuts({}, {0}, {{4, 2}, {0, 0.5f}, true},
                      {kForbidden, kForbidden, 1.5f, kForbidden, -1, kForbidden});
  SlotParams params;  // the bias comes before the penalties
  params.prompt_tokens = 1;
  params.repetition_penalty = 2;
  expect_for_all_cuts(params, {1}, {{1}, {6}}, {2, 2, 1, 0.5f, -1, 4});
}

// Prompt 3 4, then the answer; a word counts only where all of it would be in the answer.
TEST(ProcessLogits, ForbidsTheEndOfBadWords) {
  SlotParams params;
  params.prompt_tokens = 2;
  const Bias bias{{}, {}, false, {{4, 5}, {1, 2, 0}, {2, 2}}};
  expect_for_all_cuts(params, {3, 4}, bias, kLogits);
  expect_for_all_cuts(params, {3, 4, 4}, bias, {2, -2, 1, 0.5f, -1, kForbidden});
  expect_for_all_cuts(params, {3, 4, 2}, bias, {2, -2, kForbidden, 0.5f, -1, 4});
  expect_for_all_cuts(params, {3, 1, 2}, bias, {2, -2, kForbidden, 0.5f, -1, 4});
  expect_for_all_cuts(params, {3, 4, 1, 2}, bias, {kForbidden, -2, kForbidden, 0.5f, -1, 4});
  expect_for_all_cuts(params, {3, 4, 2, 1}, bias, kLogits);
}

TEST(ProcessLogits, SkipsRowsThatAreDone) { EXPECT_EQ(process({}, {}, {{0}, {5}}), kLogits); }

}  // namespace
}  // namespace tandem::kernels
