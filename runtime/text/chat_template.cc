// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/chat_template.h"

#include <boost/json/object.hpp>
#include <utility>

#include "kernels/device/error.h"
#include "runtime/text/jinja/evaluator.h"
#include "runtime/text/jinja/parser.h"

namespace tandem::runtime {
namespace {

constexpr std::size_t kMaxSourceBytes = std::size_t{4} << 20;

jinja::Value to_value(jinja::Runtime& rt, const boost::json::value& json);

std::shared_ptr<jinja::DictObject> to_dict(jinja::Runtime& rt, const boost::json::object& object) {
  auto dict = std::make_shared<jinja::DictObject>();
  for (const auto& member : object)
    dict->set(rt.string(std::string(member.key())), to_value(rt, member.value()));
  return dict;
}

jinja::Value to_value(jinja::Runtime& rt, const boost::json::value& json) {
  const jinja::Runtime::Level level(rt);
  switch (json.kind()) {
    case boost::json::kind::null:
      return {};
    case boost::json::kind::bool_:
      return jinja::Value::boolean(json.get_bool());
    case boost::json::kind::int64:
      return jinja::Value::integer(json.get_int64());
    case boost::json::kind::uint64:
      TANDEM_REQUIRE(json.get_uint64() <= INT64_MAX,
                     "the chat template's variables hold the number ", json.get_uint64(),
                     ", which does not fit in 64 bits; pass it as a string");
      return jinja::Value::integer(static_cast<std::int64_t>(json.get_uint64()));
    case boost::json::kind::double_:
      return jinja::Value::real(json.get_double());
    case boost::json::kind::string:
      return rt.string(std::string(std::string_view(json.get_string())));
    case boost::json::kind::array: {
      std::vector<jinja::Value> items;
      for (const auto& item : json.get_array()) items.push_back(to_value(rt, item));
      return rt.list(std::move(items));
    }
    case boost::json::kind::object:
      return rt.dict(to_dict(rt, json.get_object()));
  }
  return {};
}

}  // namespace

struct ChatTemplate::Impl {
  struct Parsed {
    explicit Parsed(std::string_view text) : source(text) {
      TANDEM_REQUIRE(text.size() <= kMaxSourceBytes, "the chat template is ", text.size() >> 20,
                     " MiB long; at most ", kMaxSourceBytes >> 20, " MiB are supported");
      source = jinja::normalise_source(text);
      block = jinja::parse(source);
    }
    std::string source;  // outlives the tree, whose errors point into it
    jinja::Block block;
  };
  explicit Impl(std::string_view text) : main(text) {}

  Parsed main;
  std::optional<Parsed> tool_use;
};

ChatTemplate::ChatTemplate(std::string_view source) : impl_(std::make_unique<Impl>(source)) {}

ChatTemplate::ChatTemplate(const TemplateTexts& texts) : ChatTemplate(texts.main) {
  if (texts.tool_use) impl_->tool_use.emplace(*texts.tool_use);
}

ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

std::string ChatTemplate::render(const boost::json::object& variables) const {
  const boost::json::value* tools = variables.if_contains("tools");
  const bool with_tools = impl_->tool_use && tools != nullptr && !tools->is_null();
  const Impl::Parsed& parsed = with_tools ? *impl_->tool_use : impl_->main;
  jinja::Runtime rt(parsed.source);
  const auto dict = to_dict(rt, variables);
  jinja::Evaluator evaluator(rt, *dict);
  return evaluator.run(parsed.block);
}

}  // namespace tandem::runtime
