// SPDX-License-Identifier: Apache-2.0
// Token texts by id and ids by text. Texts lie in one block of memory; ids may have holes. Filled
// once, then read only and thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tandem::runtime {

using TokenId = std::int32_t;

/// Larger ids are refused: tables are indexed by id, and no vocabulary comes near.
inline constexpr std::int64_t kMaxTokenId = (1 << 22) - 1;

class Vocabulary {
 public:
  /// ConfigError when `id` is out of range or already stands for another text, or `text` has an id.
  void add(std::string_view text, std::int64_t id);

  std::optional<TokenId> find(std::string_view text) const {
    const auto found = ids_.find(text);
    return found == ids_.end() ? std::nullopt : std::optional<TokenId>(found->second);
  }
  bool contains(TokenId id) const {
    return id >= 0 && id < size() && texts_[static_cast<std::size_t>(id)].data() != nullptr;
  }
  /// Empty for a hole; `id` must be in [0, size()).
  std::string_view text(TokenId id) const { return texts_[static_cast<std::size_t>(id)]; }
  TokenId size() const { return static_cast<TokenId>(texts_.size()); }  ///< Highest id + 1.

 private:
  std::string_view keep(std::string_view text);

  std::vector<std::string> blocks_;  ///< Each reserved once: views into them stay valid.
  std::vector<std::string_view> texts_;
  std::unordered_map<std::string_view, TokenId> ids_;
};

}  // namespace tandem::runtime
