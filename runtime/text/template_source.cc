// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/template_source.h"

#include <map>
#include <utility>

#include "runtime/json_file.h"
#include "runtime/text_file.h"

namespace tandem::runtime {
namespace {

namespace json = boost::json;

/// A special token is its text, or an object with `content`.
std::string token_text(const JsonFields& config, const char* key) {
  const json::value* value = config.find(key);
  if (value == nullptr) return {};
  if (value->is_string()) return std::string(value->get_string());
  const json::object* object = config.nested(key);
  return JsonFields(*object, config.where()).text("content");
}

/// The list form: those named "default" and "tool_use", or the only one.
TemplateTexts named_templates(const JsonFields& config, const json::array& list) {
  std::map<std::string, std::string> named;
  for (const json::value& item : list) {
    if (!item.is_object()) config.wrong("chat_template", "a list of {name, template}");
    const JsonFields entry(item.get_object(), config.where());
    named[entry.text("name")] = entry.text("template");
  }
  auto main = named.size() == 1 ? named.begin() : named.find("default");
  if (main == named.end())
    config.wrong("chat_template", "a list of one template, or with one named default");
  TemplateTexts texts{main->second, std::nullopt};
  if (const auto tools = named.find("tool_use"); tools != named.end())
    texts.tool_use = tools->second;
  return texts;
}

}  // namespace

TemplateSource find_chat_template(const std::filesystem::path& folder) {
  TemplateSource result;
  if (const auto path = folder / "tokenizer_config.json"; std::filesystem::exists(path)) {
    const json::object object = read_json_object(path);
    const JsonFields config(object, path.string());
    result.bos_token = token_text(config, "bos_token");
    result.eos_token = token_text(config, "eos_token");
    if (const json::value* value = config.find("chat_template"))
      result.texts = value->is_array() ? named_templates(config, value->get_array())
                                       : TemplateTexts{config.text("chat_template"), std::nullopt};
  }
  if (auto main = read_text_file(folder / "chat_template.jinja"))
    result.texts = TemplateTexts{
        std::move(*main), read_text_file(folder / "additional_chat_templates/tool_use.jinja")};
  return result;
}

}  // namespace tandem::runtime
