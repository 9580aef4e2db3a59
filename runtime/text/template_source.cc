// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/template_source.h"

#include <fstream>
#include <iterator>

#include "runtime/json_file.h"

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

/// The list form: the template named "default", or the only one.
std::string named_template(const JsonFields& config, const json::array& list) {
  std::optional<std::string> found;
  for (const json::value& item : list) {
    if (!item.is_object()) config.wrong("chat_template", "a list of {name, template}");
    const JsonFields entry(item.get_object(), config.where());
    if (!found || entry.text("name") == "default") found = entry.text("template");
  }
  if (!found) config.wrong("chat_template", "a list with at least one template");
  return *found;
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
      result.source = value->is_array() ? named_template(config, value->get_array())
                                        : config.text("chat_template");
  }
  if (std::ifstream file(folder / "chat_template.jinja", std::ios::binary); file)
    result.source = std::string(std::istreambuf_iterator<char>(file), {});
  return result;
}

}  // namespace tandem::runtime
