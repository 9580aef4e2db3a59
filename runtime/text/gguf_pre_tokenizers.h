// SPDX-License-Identifier: Apache-2.0
// The pre-tokenizers that GGUF files name in `tokenizer.ggml.pre`, with what each name implies.
#pragma once

#include <string_view>
#include <vector>

namespace tandem::runtime {

struct GgufPreTokenizer {
  std::vector<std::string_view> splits;  ///< Regexes; each isolates its matches, one after another.
  bool gpt2_regex = false;               ///< GPT-2's pattern after those.
  bool nfc = false;                      ///< Unicode form C before.
  bool ignore_merges = false;
  bool add_bos = false;  ///< When the file does not say.
};

/// ConfigError that names the known ones when `name` is not known.
GgufPreTokenizer gguf_pre_tokenizer(std::string_view name);

}  // namespace tandem::runtime
