// SPDX-License-Identifier: Apache-2.0
// From words that must not be generated to the token sequences that spell them.
#pragma once

#include <string>
#include <vector>

#include "runtime/text/tokenizer.h"

namespace tandem::launch {

/// The tokens of `word` at the start of a line and behind a space, as vLLM bans them; once if both
/// are the same. `word` is not empty.
inline std::vector<std::vector<std::int32_t>> word_tokens(const runtime::Tokenizer& tokenizer,
                                                          const std::string& word) {
  const runtime::Tokenizer::EncodeOptions plain{.add_special_tokens = false,
                                                .parse_special = false};
  std::vector<std::vector<std::int32_t>> result{tokenizer.encode(word, plain)};
  auto spaced = tokenizer.encode(" " + word, plain);
  if (spaced != result.front()) result.push_back(std::move(spaced));
  std::erase_if(result, [](const auto& ids) { return ids.empty(); });
  return result;
}

}  // namespace tandem::launch
