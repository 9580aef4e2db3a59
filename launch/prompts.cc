// SPDX-License-Identifier: Apache-2.0
#include "launch/prompts.h"

#include <unistd.h>

#include <boost/json.hpp>
#include <iostream>
#include <iterator>

#include "runtime/text/chat_template.h"
#include "runtime/text_file.h"

namespace tandem::launch {
namespace {

std::string read_stream(std::istream& stream) {
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::string read_prompt_file(const std::string& flag, const std::string& path) {
  if (path == "-") return read_stream(std::cin);
  auto text = runtime::read_text_file(path);
  TANDEM_REQUIRE(text, flag, "-file ", path,
                 " cannot be read; name a text file, or - for standard input");
  return *std::move(text);
}

boost::json::value read_tools(const std::string& path) {
  const auto text = runtime::read_text_file(path);
  TANDEM_REQUIRE(text, "--tools ", path, " cannot be read; name a JSON file");
  boost::system::error_code error;
  boost::json::value tools = boost::json::parse(*text, error);
  TANDEM_REQUIRE(!error && tools.is_array(), "--tools ", path,
                 " is not a JSON list; write [{\"type\": \"function\", \"function\": {...}}]");
  return tools;
}

std::string apply_template(const ModelText& text, const PromptOptions& options,
                           const std::string& prompt) {
  TANDEM_REQUIRE(text.templates.has_value(),
                 "--chat, but this model comes without a chat template; leave --chat out");
  boost::json::array messages;
  if (!options.system.empty())
    messages.push_back({{"role", "system"}, {"content", options.system}});
  messages.push_back({{"role", "user"}, {"content", prompt}});
  boost::json::object variables{{"messages", messages},
                                {"add_generation_prompt", true},
                                {"bos_token", text.bos_token},
                                {"eos_token", text.eos_token}};
  if (!options.tools.empty()) variables["tools"] = read_tools(options.tools);
  return runtime::ChatTemplate(*text.templates).render(variables);
}

}  // namespace

std::vector<std::string> read_prompts(const PromptOptions& options) {
  std::vector<std::string> texts = options.prompts;
  for (const std::string& path : options.files)
    texts.push_back(read_prompt_file(options.flag, path));
  if (texts.empty()) {
    TANDEM_REQUIRE(!isatty(STDIN_FILENO), "no text was given; use tandem ", options.command, " ",
                   options.flag, " TEXT, ", options.flag, "-file FILE, or pipe a text in");
    texts.push_back(read_stream(std::cin));
  }
  for (const std::string& text : texts)
    TANDEM_REQUIRE(!text.empty(), options.flag, " is empty; give it some text");
  return texts;
}

std::vector<std::int32_t> tokenize_prompt(const ModelText& text, const PromptOptions& options,
                                          const std::string& prompt) {
  TANDEM_REQUIRE(options.chat || options.tools.empty(),
                 "--tools is part of the chat template; add --chat");
  if (!options.chat) return text.tokenizer.encode(prompt);
  // A template writes the special tokens itself, the first one included.
  return text.tokenizer.encode(apply_template(text, options, prompt),
                               {.add_special_tokens = false, .parse_special = true});
}

}  // namespace tandem::launch
