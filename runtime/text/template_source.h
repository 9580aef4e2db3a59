// SPDX-License-Identifier: Apache-2.0
// Where a Hugging Face folder keeps its chat template and the special tokens that templates use.
// Plain values.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "runtime/text/chat_template.h"

namespace tandem::runtime {

struct TemplateSource {
  std::optional<TemplateTexts> texts;  ///< None: the model has no template.
  std::string bos_token, eos_token;    ///< Empty when the model has none.
};

/// `chat_template.jinja` and `additional_chat_templates/tool_use.jinja` win over `chat_template` of
/// tokenizer_config.json, which is a text or a list of named ones (then "default" and "tool_use").
/// ConfigError when a file is malformed.
TemplateSource find_chat_template(const std::filesystem::path& folder);

}  // namespace tandem::runtime
