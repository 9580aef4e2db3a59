// SPDX-License-Identifier: Apache-2.0
// Tokens that are found in the text before the model sees it (`<|im_end|>`, runs of spaces, ...),
// with the rules of `tokenizers`: the longest of the leftmost wins; `lstrip` and `rstrip` swallow
// white space; `normalized` tokens are looked for after normalisation, the others before.
// Immutable and thread-safe after construction.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/text/regex.h"
#include "runtime/text/vocabulary.h"

namespace tandem::runtime {

struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool single_word = false;  ///< Only where no word character touches it.
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = false;
  bool special = false;
};

/// Either one added token or a part of the text.
struct Segment {
  std::optional<TokenId> token;
  Span span;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  /// `normalize` is applied to the contents of normalised tokens.
  AddedTokens(std::vector<AddedToken> tokens,
              const std::function<std::string(std::string_view)>& normalize);

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  std::optional<TokenId> find(std::string_view content) const;

  /// Cuts `text` at the tokens that are looked for after (`normalized`) or before normalisation.
  std::vector<Segment> split(std::string_view text, bool normalized, bool parse_special) const;

 private:
  /// Contents by their bytes. Node 0 is the root.
  class Trie {
   public:
    void insert(std::string_view content, std::size_t token);
    struct Match {
      std::size_t begin, end, token;
    };
    /// The first match at or behind `position`, the longest there.
    std::optional<Match> find(std::string_view text, std::size_t position) const;

   private:
    struct Node {
      std::optional<std::size_t> token;
    };
    static std::uint64_t edge(std::size_t node, char byte) {
      return node << 8 | static_cast<std::uint8_t>(byte);
    }
    std::vector<Node> nodes_ = std::vector<Node>(1);
    std::unordered_map<std::uint64_t, std::size_t> edges_;
    std::array<bool, 256> starts_{};  ///< Bytes that begin some token.
  };

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, TokenId> ids_;
  Trie raw_, normalized_;
};

}  // namespace tandem::runtime
