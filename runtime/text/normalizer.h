// SPDX-License-Identifier: Apache-2.0
// Rewrites a text before it is cut into words: the `normalizer` of tokenizer.json as a list of
// functions. Unicode forms come from utf8proc. Immutable and thread-safe after construction.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/json_node.h"

namespace tandem::runtime {

class Normalizer {
 public:
  Normalizer() = default;  ///< Leaves texts as they are.
  /// ConfigError for a wrong or unknown component (named).
  static Normalizer from_json(const JsonNode& node);

  std::string apply(std::string_view text) const;

 private:
  void add(const JsonNode& node);
  std::vector<std::function<std::string(std::string)>> steps_;
};

}  // namespace tandem::runtime
