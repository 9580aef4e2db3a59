// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/chat_template.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

#include "kernels/device/error.h"

namespace tandem::runtime {
namespace {

std::string render(std::string_view source, std::string_view variables = "{}") {
  return ChatTemplate(source).render(boost::json::parse(variables).as_object());
}

std::string error_of(std::string_view source, std::string_view variables = "{}") {
  try {
    return "rendered: " + render(source, variables);
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(ChatTemplate, RendersChatMl) {
  const std::string source =
      "{%- for message in messages %}\n"
      "    {{- '<|im_start|>' + message.role + '\\n' + message['content'] + '<|im_end|>\\n' }}\n"
      "{%- endfor %}\n"
      "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}\n";
  EXPECT_EQ(render(source, R"({"messages": [{"role": "user", "content": "H\u00e9"}],
                               "add_generation_prompt": true})"),
            "<|im_start|>user\nHé<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, ErrorsNameThePlace) {
  EXPECT_EQ(error_of("a\n{{ 1 / 0 }}"), "chat template, line 2, column 6: division by zero");
  EXPECT_EQ(error_of("é{{ x.y }}"), "chat template, line 1, column 6: 'x' is undefined");
  EXPECT_EQ(
      error_of("{% if a %}\n  {{ raise_exception('no ' ~ 'way') }}{% endif %}", R"({"a": 1})"),
      "chat template, line 2, column 6: no way");
  EXPECT_EQ(error_of("{{ x | nope }}"),
            "chat template, line 1, column 8: there is no filter named 'nope'");
  for (const char* name : {"pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr"}) {
    EXPECT_EQ(
        error_of(std::string("{{ 'a' | ") + name + " }}"),  // HTML's, which are not there
        std::string("chat template, line 1, column 10: there is no filter named '") + name + "'");
  }
  EXPECT_EQ(error_of("{{ lipsum() }}"), "chat template, line 1, column 4: 'lipsum' is undefined");
  EXPECT_EQ(error_of("{{ 1 is nope }}"),
            "chat template, line 1, column 6: there is no test named 'nope'");
  EXPECT_EQ(error_of("{{ nope() }}"), "chat template, line 1, column 4: 'nope' is undefined");
  EXPECT_EQ(error_of("{% do x %}"), "chat template, line 1, column 4: unknown tag 'do'");
  EXPECT_EQ(error_of("{% if x %}"),
            "chat template, line 1, column 11: the template ends where 'endif' is still expected");
}

TEST(ChatTemplate, BoundsTimeDepthAndSize) {
  const std::string nested =
      "{% for a in range(99999) %}{% for b in range(99999) %}"
      "{% endfor %}{% endfor %}";
  EXPECT_NE(error_of(nested).find("runs too long"), std::string::npos);
  const std::string recursion = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
  EXPECT_NE(error_of(recursion).find("recurses too deep"), std::string::npos);
  EXPECT_NE(error_of("{{ 'x' * 10**12 }}").find("too much text"), std::string::npos);
  EXPECT_NE(error_of("{{ [0] * 10**12 }}").find("too much text"), std::string::npos);
  const std::string doubling =
      "{% set n = namespace(s='x') %}{% for i in range(99) %}"
      "{% set n.s = n.s ~ n.s %}{% endfor %}";
  EXPECT_NE(error_of(doubling).find("too much text"), std::string::npos);
  const std::string nesting =
      "{% set n = namespace(v=1) %}{% for i in range(9999) %}"
      "{% set n.v = [n.v] %}{% endfor %}";
  EXPECT_NE(error_of(nesting).find("nests more than"), std::string::npos);
  EXPECT_NE(error_of("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}")
                .find("nests more than"),
            std::string::npos);
  std::string chain = "{{ 1";
  for (int i = 0; i < 5000; ++i) chain += "+1";
  EXPECT_NE(error_of(chain + " }}").find("nests more than"), std::string::npos);
}

// Each of these once took minutes.
TEST(ChatTemplate, LongTextsAreBoundedToo) {
  const std::string many = "{% set x = 'a' * 1000000 %}{% for i in range(99999) %}";
  for (const char* work :
       {"{{ (x ~ 'b') in x }}", "{{ x.count('a' * 1000 ~ 'b') }}", "{{ x.isalpha() }}",
        "{{ (' ' * 1000000).strip() | length }}", "{{ x | upper | length }}", "{{ x | length }}",
        "{{ x.rsplit('ab', 1) | length }}"}) {
    const std::string error = error_of(many + work + "{% endfor %}");
    EXPECT_TRUE(error.find("runs too long") != std::string::npos ||
                error.find("too much text") != std::string::npos)
        << work << ": " << error;
  }
  // A value that holds itself twice, sixty times over: 2^60 parts.
  const std::string doubled =
      "{% set n = namespace(v=[1]) %}{% for i in range(60) %}"
      "{% set n.v = [n.v, n.v] %}{% endfor %}";
  EXPECT_NE(error_of(doubled + "{{ n.v }}").find("runs too long"), std::string::npos);
  EXPECT_NE(error_of(doubled + "{{ n.v | tojson }}").find("runs too long"), std::string::npos);
}

TEST(ChatTemplate, SelfReferencesAreFreed) {  // meaningful under LeakSanitizer
  EXPECT_EQ(
      render("{% set n = namespace() %}{% set n.self = n %}{% macro m() %}{{ n }}{% endmacro %}"
             "{% set n.m = m %}ok"),
      "ok");
}

}  // namespace
}  // namespace tandem::runtime
