// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/device/cpu/context.h"
#include "kernels/sample.h"

namespace tandem::kernels {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

/// The logits of one sample and the part of the vocabulary that they cover.
struct ShardRow {
  float* logits;
  std::int64_t begin, end;
  float* find(std::int32_t token) const {
    return token >= begin && token < end ? logits + (token - begin) : nullptr;
  }
};

void apply_bias(const ShardRow& row, const LogitBiasView<Cpu>& bias, std::int32_t slot) {
  if (bias.begin == nullptr) return;
  std::vector<std::pair<std::int32_t, float>> listed;
  for (std::int32_t b = bias.begin[slot]; b < bias.begin[slot + 1]; ++b)
    if (const float* logit = row.find(bias.ids[b]))
      listed.emplace_back(bias.ids[b], *logit + bias.values[b]);
  if (bias.exclusive != nullptr && bias.exclusive[slot] != 0)
    std::fill(row.logits, row.logits + (row.end - row.begin), kForbidden);
  for (const auto& [token, value] : listed) *row.find(token) = value;
}

/// vLLM's definitions: repetition looks at prompt and answer, the other two at the answer only.
void apply_penalties(const ShardRow& row, const SlotParams& params, const std::int32_t* history,
                     std::int32_t length) {
  std::unordered_map<std::int32_t, std::int32_t> generated;
  for (std::int32_t p = 0; p < length; ++p) {
    const auto [entry, is_new] = generated.try_emplace(history[p], 0);
    if (p >= params.prompt_tokens) ++entry->second;
    float* logit = row.find(history[p]);
    if (is_new && logit != nullptr)
      *logit = *logit > 0 ? *logit / params.repetition_penalty : *logit * params.repetition_penalty;
  }
  for (const auto& [token, count] : generated)
    if (float* logit = row.find(token); logit != nullptr && count > 0)
      *logit -= params.presence_penalty + params.frequency_penalty * static_cast<float>(count);
}

/// Forbids every token that would repeat an n-gram of the history.
void forbid_repeated_ngrams(const ShardRow& row, std::int32_t n, const std::int32_t* history,
                            std::int32_t length) {
  if (n <= 0 || length < n) return;
  const std::int32_t* tail = history + length - (n - 1);
  for (std::int32_t begin = 0; begin + n <= length; ++begin)
    if (std::equal(tail, history + length, history + begin))
      if (float* logit = row.find(history[begin + n - 1])) *logit = kForbidden;
}

/// Of each word whose first tokens the answer ends with, forbids the last.
void forbid_bad_words(const ShardRow& row, const LogitBiasView<Cpu>& bias, std::int32_t slot,
                      std::span<const std::int32_t> answer) {
  if (bias.word_begin == nullptr) return;
  for (std::int32_t w = bias.word_begin[slot]; w < bias.word_begin[slot + 1]; ++w) {
    const std::span word(bias.words + bias.word_tokens[w], bias.words + bias.word_tokens[w + 1]);
    const std::span before = word.first(word.size() - 1);
    float* logit = row.find(word.back());
    if (logit != nullptr && before.size() <= answer.size() &&
        std::equal(before.begin(), before.end(), answer.last(before.size()).begin()))
      *logit = kForbidden;
  }
}

}  // namespace

void process_logits(Context<Cpu>&, const ShardArgs<Cpu>& args, const LogitBiasView<Cpu>& bias) {
#pragma omp parallel for
  for (std::int32_t i = 0; i < args.samples.num_samples; ++i) {
    const std::int32_t slot = args.samples.slots[i];
    const std::int32_t length = args.positions[args.samples.rows[i]] + 1;
    if (length <= 0) continue;
    const SlotParams& params = args.slots.params[slot];
    const std::int32_t* history =
        args.slots.history + std::int64_t{slot} * args.slots.history_stride;
    const ShardRow row{args.logits.row(i), args.vocab_begin,
                       std::min(args.vocab_begin + args.logits.cols, args.vocab_size)};
    apply_bias(row, bias, slot);
    if (params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
        params.frequency_penalty != 0.0f)
      apply_penalties(row, params, history, length);
    forbid_repeated_ngrams(row, params.no_repeat_ngram, history, length);
    forbid_bad_words(row, bias, slot,
                     {history + std::min(params.prompt_tokens, length), history + length});
    if (length - params.prompt_tokens < params.min_tokens)
      for (std::int32_t s = 0; s < params.num_stop_ids; ++s)
        if (float* logit = row.find(params.stop_ids[s])) *logit = kForbidden;
  }
}

}  // namespace tandem::kernels
