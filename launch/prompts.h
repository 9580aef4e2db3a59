// SPDX-License-Identifier: Apache-2.0
// Where prompts come from (flags, files, standard input) and how they become tokens. Rank 0 only.
#pragma once

#include <string>
#include <vector>

#include "launch/model_source.h"
#include "runtime/request.h"

namespace tandem::launch {

struct PromptOptions {
  std::string command = "generate", flag = "--prompt";  ///< What errors name.
  std::vector<std::string> prompts;
  std::vector<std::string> files;  ///< One prompt each; "-" is standard input.
  bool chat = false;               ///< Each prompt is a user's message in the model's template.
  std::string system;              ///< With `chat`: the system message.
  std::string tools;               ///< With `chat`: a file with a JSON list of tools.
};

/// The texts in the order given: flags first, then files. Standard input is read when neither was
/// given. ConfigError when there is no text, a file cannot be read, or a text is not UTF-8.
std::vector<std::string> read_prompts(const PromptOptions& options);

/// One prompt as the model wants it.
std::vector<std::int32_t> tokenize_prompt(const ModelText& text, const PromptOptions& options,
                                          const std::string& prompt);

}  // namespace tandem::launch
