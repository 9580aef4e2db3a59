// SPDX-License-Identifier: Apache-2.0
// Chat templates: a Jinja interpreter for what real templates use, byte-equal to Python's jinja2
// as `transformers` configures it (trim_blocks, lstrip_blocks, loopcontrols, generation blocks).
// Bounded in steps, depth and output size. Immutable and thread-safe after construction.
#pragma once

#include <boost/json/value.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::runtime {

/// What a model brings: its template, and perhaps one of its own for conversations with tools.
struct TemplateTexts {
  std::string main;
  std::optional<std::string> tool_use;
  bool operator==(const TemplateTexts&) const = default;
};

class ChatTemplate {
 public:
  /// Parses; ConfigError with line and column when the source is wrong.
  explicit ChatTemplate(std::string_view source);
  explicit ChatTemplate(const TemplateTexts& texts);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// Renders with `variables`, a JSON object: `messages`, `add_generation_prompt`, `bos_token`,
  /// `eos_token`, `tools` (not null: the template for tools is taken, if any), ... ConfigError with
  /// line and column when the template raises, loops without end, recurses too deep or calls what
  /// does not exist.
  std::string render(const boost::json::object& variables) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::runtime
