// SPDX-License-Identifier: Apache-2.0
// The special tokens around one text (BOS, EOS): the `post_processor` of tokenizer.json. Components
// that only trim offsets do nothing here. Immutable and thread-safe after construction.
#pragma once

#include <vector>

#include "runtime/text/json_node.h"
#include "runtime/text/vocabulary.h"

namespace tandem::runtime {

class PostProcessor {
 public:
  PostProcessor() = default;
  PostProcessor(std::vector<TokenId> prefix, std::vector<TokenId> suffix)
      : prefix_(std::move(prefix)), suffix_(std::move(suffix)) {}
  /// ConfigError for a wrong or unknown component (named).
  static PostProcessor from_json(const JsonNode& node);

  const std::vector<TokenId>& prefix() const { return prefix_; }
  const std::vector<TokenId>& suffix() const { return suffix_; }

 private:
  void add(const JsonNode& node);
  void add_template(const JsonNode& node);
  void wrap(std::vector<TokenId> before, const std::vector<TokenId>& after);

  std::vector<TokenId> prefix_, suffix_;
};

}  // namespace tandem::runtime
