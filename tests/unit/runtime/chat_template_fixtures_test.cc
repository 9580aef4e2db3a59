// SPDX-License-Identifier: Apache-2.0
// Byte equality with jinja2 as transformers configures it, on tables made by
// tests/fixtures/templates/make_*.py.
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <fstream>
#include <optional>
#include <sstream>

#include "kernels/device/error.h"
#include "runtime/text/chat_template.h"

namespace tandem::runtime {
namespace {

std::string read_fixture(const std::string& name) {
  std::ifstream in(std::string(TANDEM_FIXTURES "/templates/") + name, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// What the template prints, or nothing when it is refused with a place.
std::optional<std::string> render(std::string_view source, const boost::json::object& variables) {
  try {
    return ChatTemplate(source).render(variables);
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()).find("chat template, line "), 0u) << error.what();
    return std::nullopt;
  }
}

std::optional<std::string> expected_of(const boost::json::object& row) {
  const boost::json::value* text = row.if_contains("expected");
  return text ? std::optional(std::string(text->as_string())) : std::nullopt;
}

TEST(ChatTemplateFixtures, ExpressionsAndStatements) {
  const auto table = boost::json::parse(read_fixture("expressions.json")).as_object();
  const auto& cases = table.at("cases").as_array();
  ASSERT_GT(cases.size(), 1000u);
  for (const auto& row : cases) {
    const std::string_view source = row.at("template").as_string();
    EXPECT_EQ(render(source, table.at("variables").as_object()), expected_of(row.as_object()))
        << source;
  }
}

TEST(ChatTemplateFixtures, ConversationsOfModelFamilies) {
  const auto table = boost::json::parse(read_fixture("chats.json")).as_object();
  const auto& renderings = table.at("renderings").as_array();
  ASSERT_GT(renderings.size(), 200u);
  for (const auto& row : renderings) {
    const std::string name(row.at("template").as_string());
    const std::string_view chat = row.at("case").as_string();
    const auto& variables = table.at("cases").at(chat).as_object();
    EXPECT_EQ(render(read_fixture("chats/" + name + ".jinja"), variables),
              expected_of(row.as_object()))
        << name << " with " << chat;
  }
}

}  // namespace
}  // namespace tandem::runtime
