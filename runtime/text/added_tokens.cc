// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/added_tokens.h"

#include <algorithm>

#include "runtime/text/characters.h"

namespace tandem::runtime {

void AddedTokens::Trie::insert(std::string_view content, std::size_t token) {
  if (content.empty()) return;
  starts_[static_cast<std::uint8_t>(content.front())] = true;
  std::size_t node = 0;
  for (const char byte : content) {
    const auto [next, inserted] = edges_.try_emplace(edge(node, byte), nodes_.size());
    if (inserted) nodes_.emplace_back();
    node = next->second;
  }
  nodes_[node].token = token;
}

std::optional<AddedTokens::Trie::Match> AddedTokens::Trie::find(std::string_view text,
                                                                std::size_t position) const {
  for (; position < text.size(); ++position) {
    if (!starts_[static_cast<std::uint8_t>(text[position])]) continue;
    std::optional<Match> longest;
    std::size_t node = 0;
    for (std::size_t end = position; end < text.size(); ++end) {
      const auto next = edges_.find(edge(node, text[end]));
      if (next == edges_.end()) break;
      node = next->second;
      if (nodes_[node].token) longest = Match{position, end + 1, *nodes_[node].token};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens,
                         const std::function<std::string(std::string_view)>& normalize)
    : tokens_(std::move(tokens)) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    ids_[token.content] = token.id;
    if (token.normalized) {
      normalized_.insert(normalize(token.content), i);
    } else {
      raw_.insert(token.content, i);
    }
  }
}

std::optional<TokenId> AddedTokens::find(std::string_view content) const {
  const auto found = ids_.find(std::string(content));
  return found == ids_.end() ? std::nullopt : std::optional<TokenId>(found->second);
}

std::vector<Segment> AddedTokens::split(std::string_view text, bool normalized,
                                        bool parse_special) const {
  const Trie& trie = normalized ? normalized_ : raw_;
  std::vector<Segment> segments;
  std::size_t done = 0;  // Text before this offset is in a segment.
  std::size_t position = 0;
  while (const auto match = trie.find(text, position)) {
    position = match->end;
    const AddedToken& token = tokens_[match->token];
    if (token.special && !parse_special) continue;
    Span span{match->begin, match->end};
    if (token.single_word && (ends_with_word_character(text.substr(0, span.begin)) ||
                              starts_with_word_character(text.substr(span.end)))) {
      continue;
    }
    if (token.lstrip) {
      span.begin = std::max(done, span.begin - white_space_at_end(text.substr(0, span.begin)));
    }
    if (token.rstrip) span.end += white_space_at_start(text.substr(span.end));
    if (done < span.begin) segments.push_back({std::nullopt, {done, span.begin}});
    segments.push_back({token.id, span});
    done = span.end;
  }
  if (done < text.size()) segments.push_back({std::nullopt, {done, text.size()}});
  return segments;
}

}  // namespace tandem::runtime
