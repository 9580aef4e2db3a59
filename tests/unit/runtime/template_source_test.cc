// SPDX-License-Identifier: Apache-2.0
// Where a model's folder or GGUF file keeps its templates, and which one a conversation takes.
#include "runtime/text/template_source.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <fstream>

#include "kernels/device/error.h"
#include "support/temporary_folder.h"

namespace tandem::runtime {
namespace {

class TemplateSourceTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    const auto path = folder_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  TemplateSource find() const { return find_chat_template(folder_.path()); }
  std::string fault() const {
    try {
      find();
      return "no error";
    } catch (const ConfigError& error) {
      return error.what();
    }
  }
  testing::TemporaryFolder folder_;
};

TEST_F(TemplateSourceTest, ATextOrNothing) {
  EXPECT_EQ(find().texts, std::nullopt);
  write("tokenizer_config.json", R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>"})");
  EXPECT_EQ(find().texts, std::nullopt);
  EXPECT_EQ(find().bos_token, "<s>");
  EXPECT_EQ(find().eos_token, "</s>");
  write("tokenizer_config.json", R"({"chat_template": "A"})");
  EXPECT_EQ(find().texts, (TemplateTexts{"A", std::nullopt}));
}

TEST_F(TemplateSourceTest, NamedOnes) {
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "R"},
    {"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]})");
  EXPECT_EQ(find().texts, (TemplateTexts{"D", "T"}));
  write("tokenizer_config.json", R"({"chat_template": [{"name": "only", "template": "O"}]})");
  EXPECT_EQ(find().texts, (TemplateTexts{"O", std::nullopt}));
  for (const char* bad : {R"([])", R"(["x"])", R"([{"name": "a", "template": 3}])",
                          R"([{"name": "a", "template": "A"}, {"name": "b", "template": "B"}])"}) {
    write("tokenizer_config.json", std::string(R"({"chat_template": )") + bad + "}");
    EXPECT_NE(fault().find("tokenizer_config.json"), std::string::npos) << fault();
    EXPECT_EQ(fault().find('\n'), std::string::npos) << fault();
  }
}

TEST_F(TemplateSourceTest, FilesWin) {
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "D"},
    {"name": "tool_use", "template": "T"}]})");
  write("chat_template.jinja", "F");
  EXPECT_EQ(find().texts, (TemplateTexts{"F", std::nullopt}));
  write("additional_chat_templates/tool_use.jinja", "FT");
  EXPECT_EQ(find().texts, (TemplateTexts{"F", "FT"}));
}

TEST(TemplateTexts, ToolsChooseTheirTemplate) {
  const auto render = [](const TemplateTexts& texts, const char* variables) {
    return ChatTemplate(texts).render(boost::json::parse(variables).as_object());
  };
  const TemplateTexts both{"main", "tools: {{ tools | length }}"};
  EXPECT_EQ(render(both, R"({"tools": [{}, {}]})"), "tools: 2");
  EXPECT_EQ(render(both, R"({"tools": null})"), "main");
  EXPECT_EQ(render(both, "{}"), "main");
  EXPECT_EQ(render({"main {{ tools | length }}", std::nullopt}, R"({"tools": [{}]})"), "main 1");
  EXPECT_THROW(render({"main", "{% if %}"}, "{}"), ConfigError);
}

}  // namespace
}  // namespace tandem::runtime
