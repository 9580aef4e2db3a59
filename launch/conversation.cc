// SPDX-License-Identifier: Apache-2.0
#include "launch/conversation.h"

#include <boost/json.hpp>
#include <utility>

namespace tandem::launch {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";

const runtime::TemplateTexts& templates_of(const ModelText& text) {
  TANDEM_REQUIRE(
      text.templates.has_value(),
      "this model comes without a chat template, so it cannot chat; use tandem generate");
  return *text.templates;
}

}  // namespace

Conversation::Conversation(const ModelText& text, const std::string& system)
    : text_(text), template_(templates_of(text)) {
  if (system.empty()) return;
  add("system", system);
  first_ = 1;
}

void Conversation::add(const std::string& role, const std::string& content) {
  messages_.push_back({{"role", role}, {"content", content}});
}

void Conversation::drop_last() { messages_.pop_back(); }

void Conversation::clear() { messages_.resize(first_); }

bool Conversation::forget_oldest() {
  if (messages_.size() < first_ + 3) return false;
  const auto oldest = messages_.begin() + static_cast<std::ptrdiff_t>(first_);
  messages_.erase(oldest, oldest + 2);
  return true;
}

std::vector<std::int32_t> Conversation::prompt() const {
  const std::string rendered = template_.render({{"messages", messages_},
                                                 {"add_generation_prompt", true},
                                                 {"bos_token", text_.bos_token},
                                                 {"eos_token", text_.eos_token}});
  // A template writes the special tokens itself, the first one included.
  return text_.tokenizer.encode(rendered, {.add_special_tokens = false, .parse_special = true});
}

std::optional<std::string> MessageReader::push(std::string line) {
  if (!pending_ && line.starts_with(kQuotes)) {
    quoted_ = true;
    line.erase(0, kQuotes.size());
  }
  bool more = quoted_ && !line.ends_with(kQuotes);
  if (quoted_ && !more) line.resize(line.size() - kQuotes.size());
  if (!quoted_ && line.ends_with('\\')) {
    line.pop_back();
    more = true;
  }
  // The opening quotes may stand alone on their line.
  const bool only_quotes = quoted_ && !pending_ && line.empty();
  text_ += line;
  if (more) {
    if (!only_quotes) text_ += '\n';
    pending_ = true;
    return std::nullopt;
  }
  std::string message = std::move(text_);
  if (quoted_ && line.empty() && message.ends_with('\n')) message.pop_back();  // closing ones too
  reset();
  return message;
}

}  // namespace tandem::launch
