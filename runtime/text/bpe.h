// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one word (Sennrich et al., "Neural Machine Translation of Rare Words with
// Subword Units", 2016): the pair of lowest rank is merged first, the leftmost of equals, until no
// pair is left. A heap over a linked list makes it O(n log n) in the word's length.
// `BpeModel` is immutable and thread-safe; a `BpeEncoder` (scratch and word cache) serves one text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/vocabulary.h"

namespace tandem::runtime {

/// Two neighbours `left`, `right` become `result`; the lowest `rank` goes first.
struct MergeRule {
  TokenId left, right, result;
  std::int32_t rank;
};

/// Rules by pair in one flat open-addressing table.
class MergeTable {
 public:
  struct Entry {
    std::uint64_t pair;
    std::int32_t rank;
    TokenId result;
  };
  explicit MergeTable(const std::vector<MergeRule>& rules);
  const Entry* find(TokenId left, TokenId right) const {
    const std::uint64_t pair = key(left, right);
    for (std::size_t slot = pair * kMultiplier >> shift_;; slot = (slot + 1) & mask_) {
      if (entries_[slot].pair == pair) return &entries_[slot];
      if (entries_[slot].pair == kEmpty) return nullptr;
    }
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  static constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15u;  // Fibonacci hashing (Knuth).
  static std::uint64_t key(TokenId left, TokenId right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }
  std::vector<Entry> entries_;
  std::size_t mask_ = 0;
  int shift_ = 0;
};

struct BpeOptions {
  std::optional<TokenId> unknown;         ///< Without it, characters of no token are dropped.
  std::string continuing_subword_prefix;  ///< Before every character of a word but the first.
  std::string end_of_word_suffix;         ///< Behind the last character of a word.
  bool fuse_unknown = false;              ///< A run of unknown characters gives one token.
  bool byte_fallback = false;             ///< Unknown characters become tokens like `<0xE2>`.
  bool ignore_merges = false;             ///< A word that is a token is not split.
};

/// Resolves merges by name; `texts` are in rank order. ConfigError names one that is unknown.
std::vector<MergeRule> make_merge_rules(
    const Vocabulary& vocabulary,
    const std::vector<std::pair<std::string_view, std::string_view>>& texts,
    const std::string& continuing_subword_prefix);

class BpeModel {
 public:
  BpeModel(Vocabulary vocabulary, const std::vector<MergeRule>& rules, BpeOptions options);

  const Vocabulary& vocabulary() const { return vocabulary_; }
  const BpeOptions& options() const { return options_; }

 private:
  friend class BpeEncoder;
  std::optional<TokenId> find_character(std::string_view character) const;
  /// Whether no rule joins two tokens across a border between a character and a "\u2581" behind
  /// it. Then a text can be cut there without changing the result; models whose words are whole
  /// texts (SentencePiece) profit from the word cache that way.
  bool find_word_ends(const std::vector<MergeRule>& rules) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  BpeOptions options_;
  bool words_end_at_metaspace_ = false;              ///< See `find_word_ends`.
  std::vector<TokenId> short_characters_;            ///< By code point below 0x800; -1: no token.
  std::array<std::optional<TokenId>, 256> bytes_{};  ///< `<0x00>` ... `<0xFF>`.
};

class BpeEncoder {
 public:
  /// The cache is sized for a text of `text_bytes`.
  BpeEncoder(const BpeModel& model, std::size_t text_bytes);
  /// Appends the ids of `word` (valid UTF-8) to `out`, always the same vector.
  void encode(std::string_view word, std::vector<TokenId>& out);

 private:
  struct Symbol {
    TokenId id;
    std::int32_t previous, next;  ///< Neighbours; -1 at the ends. A merged-away symbol has id -1.
  };
  /// Where an earlier word of this text and its ids lie.
  struct Cached {
    std::uint64_t hash = 0;
    std::uint32_t text_begin = 0, text_length = 0;
    std::size_t ids_begin = 0;
    std::uint32_t ids_count = 0;
  };
  void encode_word(std::string_view word, std::vector<TokenId>& out);
  void split_characters(std::string_view word);
  void append_fallback(std::string_view character, std::optional<TokenId>& pending_unknown);
  void merge_all();
  void push_candidate(std::int32_t left, std::int32_t right);
  void encode_uncached(std::string_view word, std::vector<TokenId>& out);

  const BpeModel& model_;
  std::vector<Symbol> symbols_;
  std::vector<std::uint64_t> heap_;  ///< Rank above position of a pair; the least is on top.
  std::string character_;
  std::vector<Cached> cache_;
  std::string cached_text_;
};

}  // namespace tandem::runtime
