// SPDX-License-Identifier: Apache-2.0
// Cuts a normalised text into the words that the model sees: the `pre_tokenizer` of
// tokenizer.json as a list of stages. Immutable and thread-safe after construction.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/text/json_node.h"
#include "runtime/text/pre_tokenizer_stages.h"

namespace tandem::runtime {

class PreTokenizer {
 public:
  PreTokenizer() = default;  ///< The whole text is one word.
  /// ConfigError for a wrong or unknown component (named).
  static PreTokenizer from_json(const JsonNode& node);

  Words split(std::string text, bool at_start) const;

 private:
  void add(const JsonNode& node);
  std::vector<std::unique_ptr<PreTokenizerStage>> stages_;
};

}  // namespace tandem::runtime
