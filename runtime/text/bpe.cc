// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/bpe.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <functional>
#include <limits>

#include "kernels/device/error.h"
#include "runtime/text/utf8.h"

namespace tandem::runtime {
namespace {

constexpr std::size_t kShortCharacters = 0x800;
constexpr std::size_t kMinCacheSlots = 1 << 6;
constexpr std::size_t kMaxCacheSlots = 1 << 13;
constexpr std::size_t kMaxCachedWord = 64;
constexpr std::size_t kMaxCachedText = 1 << 18;

constexpr std::string_view kMetaspace = "\xE2\x96\x81";

/// Candidates in the order in which they are merged: by rank, then from the left.
std::uint64_t candidate_key(std::int32_t rank, std::int32_t position) {
  return static_cast<std::uint64_t>(rank) << 32 | static_cast<std::uint32_t>(position);
}

}  // namespace

MergeTable::MergeTable(const std::vector<MergeRule>& rules) {
  const std::size_t slots = std::bit_ceil(std::max<std::size_t>(16, 2 * rules.size()));
  entries_.assign(slots, {kEmpty, 0, 0});
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
  for (const MergeRule& rule : rules) {
    const std::uint64_t pair = key(rule.left, rule.right);
    std::size_t slot = pair * kMultiplier >> shift_;
    while (entries_[slot].pair != kEmpty && entries_[slot].pair != pair) slot = (slot + 1) & mask_;
    entries_[slot] = {pair, rule.rank, rule.result};  // Of equal pairs the last one counts.
  }
}

std::vector<MergeRule> make_merge_rules(
    const Vocabulary& vocabulary,
    const std::vector<std::pair<std::string_view, std::string_view>>& texts,
    const std::string& continuing_subword_prefix) {
  std::vector<MergeRule> rules;
  rules.reserve(texts.size());
  const auto id_of = [&](std::string_view token) {
    const auto id = vocabulary.find(token);
    TANDEM_REQUIRE(id, "merge ", rules.size(), " of the tokenizer needs the token '", token,
                   "', which is not in its vocabulary; download the tokenizer again");
    return *id;
  };
  for (const auto& [left, right] : texts) {
    std::string result(left);
    result += right.starts_with(continuing_subword_prefix)
                  ? right.substr(continuing_subword_prefix.size())
                  : right;
    const auto rank = static_cast<std::int32_t>(rules.size());
    rules.push_back({id_of(left), id_of(right), id_of(result), rank});
  }
  return rules;
}

BpeModel::BpeModel(Vocabulary vocabulary, const std::vector<MergeRule>& rules, BpeOptions options)
    : vocabulary_(std::move(vocabulary)),
      merges_(rules),
      options_(std::move(options)),
      short_characters_(kShortCharacters, -1) {
  for (char32_t character = 0; character < kShortCharacters; ++character) {
    std::string text;
    append_utf8(text, character);
    short_characters_[character] = vocabulary_.find(text).value_or(-1);
  }
  for (unsigned byte = 0; byte < bytes_.size(); ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    bytes_[byte] = vocabulary_.find(text);
  }
  words_end_at_metaspace_ = find_word_ends(rules);
}

bool BpeModel::find_word_ends(const std::vector<MergeRule>& rules) const {
  if (options_.ignore_merges || !options_.continuing_subword_prefix.empty() ||
      !options_.end_of_word_suffix.empty() || !vocabulary_.find(kMetaspace)) {
    return false;
  }
  return std::none_of(rules.begin(), rules.end(), [&](const MergeRule& rule) {
    return !vocabulary_.text(rule.left).ends_with(kMetaspace) &&
           vocabulary_.text(rule.right).starts_with(kMetaspace);
  });
}

std::optional<TokenId> BpeModel::find_character(std::string_view character) const {
  if (character.size() <= 2) {
    const char32_t code = utf8_step(character, 0).character;
    if (character.size() == utf8_step(character, 0).length) {
      const TokenId id = short_characters_[code];
      return id < 0 ? std::nullopt : std::optional<TokenId>(id);
    }
  }
  return vocabulary_.find(character);
}

BpeEncoder::BpeEncoder(const BpeModel& model, std::size_t text_bytes)
    : model_(model),
      cache_(std::bit_ceil(std::clamp(text_bytes / 4, kMinCacheSlots, kMaxCacheSlots))) {}

void BpeEncoder::append_fallback(std::string_view character,
                                 std::optional<TokenId>& pending_unknown) {
  const auto& bytes = model_.bytes_;
  const auto byte_id = [&](char c) { return bytes[static_cast<std::uint8_t>(c)]; };
  if (model_.options_.byte_fallback && std::all_of(character.begin(), character.end(), [&](char c) {
        return byte_id(c).has_value();
      })) {
    for (const char c : character) symbols_.push_back({*byte_id(c), 0, 0});
    return;
  }
  if (!model_.options_.unknown) return;
  if (pending_unknown && !model_.options_.fuse_unknown) {
    symbols_.push_back({*pending_unknown, 0, 0});
  }
  pending_unknown = model_.options_.unknown;
}

void BpeEncoder::split_characters(std::string_view word) {
  symbols_.clear();
  std::optional<TokenId> pending_unknown;
  for (std::size_t position = 0; position < word.size();) {
    const std::size_t length = utf8_step(word, position).length;
    const bool first = position == 0, last = position + length == word.size();
    std::string_view character = word.substr(position, length);
    if ((!first && !model_.options_.continuing_subword_prefix.empty()) ||
        (last && !model_.options_.end_of_word_suffix.empty())) {
      character_ = first ? "" : model_.options_.continuing_subword_prefix;
      character_ += character;
      if (last) character_ += model_.options_.end_of_word_suffix;
      character = character_;
    }
    if (const auto id = model_.find_character(character)) {
      if (pending_unknown) symbols_.push_back({*pending_unknown, 0, 0});
      pending_unknown.reset();
      symbols_.push_back({*id, 0, 0});
    } else {
      append_fallback(character, pending_unknown);
    }
    position += length;
  }
  if (pending_unknown) symbols_.push_back({*pending_unknown, 0, 0});
  const auto count = static_cast<std::int32_t>(symbols_.size());
  for (std::int32_t i = 0; i < count; ++i) {
    symbols_[i].previous = i - 1;
    symbols_[i].next = i + 1 < count ? i + 1 : -1;
  }
}

void BpeEncoder::push_candidate(std::int32_t left, std::int32_t right) {
  if (left < 0 || right < 0) return;
  if (const auto* entry = model_.merges_.find(symbols_[left].id, symbols_[right].id)) {
    heap_.push_back(candidate_key(entry->rank, left));
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>{});
  }
}

void BpeEncoder::merge_all() {
  heap_.clear();
  for (std::int32_t i = 0; i + 1 < static_cast<std::int32_t>(symbols_.size()); ++i) {
    if (const auto* entry = model_.merges_.find(symbols_[i].id, symbols_[i + 1].id)) {
      heap_.push_back(candidate_key(entry->rank, i));
    }
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>{});
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>{});
    const std::uint64_t candidate = heap_.back();
    heap_.pop_back();
    const auto position = static_cast<std::int32_t>(candidate);
    Symbol& left = symbols_[position];
    if (left.id < 0 || left.next < 0) continue;
    Symbol& right = symbols_[left.next];
    const auto* entry = model_.merges_.find(left.id, right.id);
    // A neighbour has changed since the candidate was pushed: it is another pair.
    if (entry == nullptr || candidate_key(entry->rank, position) != candidate) continue;
    left.id = entry->result;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols_[left.next].previous = position;
    push_candidate(left.previous, position);
    push_candidate(position, left.next);
  }
}

void BpeEncoder::encode_uncached(std::string_view word, std::vector<TokenId>& out) {
  if (model_.options_.ignore_merges) {
    if (const auto id = model_.vocabulary_.find(word)) {
      out.push_back(*id);
      return;
    }
  }
  TANDEM_REQUIRE(word.size() < std::size_t{std::numeric_limits<std::int32_t>::max()},
                 "one word of the text has ", word.size(), " bytes; shorten it below 2 GiB");
  split_characters(word);
  merge_all();
  for (std::int32_t i = symbols_.empty() ? -1 : 0; i >= 0; i = symbols_[i].next) {
    out.push_back(symbols_[i].id);
  }
}

void BpeEncoder::encode(std::string_view word, std::vector<TokenId>& out) {
  if (!model_.words_end_at_metaspace_) return encode_word(word, out);
  std::size_t begin = 0;
  for (auto next = word.find(kMetaspace); next != std::string_view::npos;
       next = word.find(kMetaspace, next + kMetaspace.size())) {
    // In a run of them only the first ends a word.
    if (next == begin || word.substr(0, next).ends_with(kMetaspace)) continue;
    encode_word(word.substr(begin, next - begin), out);
    begin = next;
  }
  encode_word(word.substr(begin), out);
}

void BpeEncoder::encode_word(std::string_view word, std::vector<TokenId>& out) {
  if (word.empty()) return;
  if (word.size() > kMaxCachedWord) return encode_uncached(word, out);
  const std::uint64_t hash = std::hash<std::string_view>{}(word);
  Cached& slot = cache_[hash & (cache_.size() - 1)];
  if (slot.hash == hash && slot.text_length == word.size() &&
      std::string_view(cached_text_).substr(slot.text_begin, slot.text_length) == word) {
    out.resize(out.size() + slot.ids_count);
    std::copy_n(out.begin() + static_cast<std::ptrdiff_t>(slot.ids_begin), slot.ids_count,
                out.end() - slot.ids_count);
    return;
  }
  if (cached_text_.size() > kMaxCachedText) {
    cache_.assign(cache_.size(), {});
    cached_text_.clear();
  }
  const std::size_t begin = out.size();
  encode_uncached(word, out);
  slot = {hash, static_cast<std::uint32_t>(cached_text_.size()),
          static_cast<std::uint32_t>(word.size()), begin,
          static_cast<std::uint32_t>(out.size() - begin)};
  cached_text_.append(word);
}

}  // namespace tandem::runtime
