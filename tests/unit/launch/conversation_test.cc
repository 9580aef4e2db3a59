// SPDX-License-Identifier: Apache-2.0
#include "launch/conversation.h"

#include <gtest/gtest.h>

namespace tandem::launch {
namespace {

std::vector<std::string> messages(const std::vector<std::string>& lines) {
  MessageReader reader;
  std::vector<std::string> found;
  for (const std::string& line : lines)
    if (auto message = reader.push(line)) found.push_back(*message);
  if (reader.pending()) found.push_back("<pending>");
  return found;
}

using Texts = std::vector<std::string>;

TEST(MessageReader, JoinsLines) {
  EXPECT_EQ(messages({"a", "", "b"}), (Texts{"a", "", "b"}));
  EXPECT_EQ(messages({"a\\", "b\\", "c", "d"}), (Texts{"a\nb\nc", "d"}));
  EXPECT_EQ(messages({"\"\"\"", "a", "", "b\\", "\"\"\"", "c"}), (Texts{"a\n\nb\\", "c"}));
  EXPECT_EQ(messages({"\"\"\"a", "b\"\"\"", "\"\"\"c\"\"\""}), (Texts{"a\nb", "c"}));
  EXPECT_EQ(messages({"say \"\"\"x\"\"\" ", "y"}), (Texts{"say \"\"\"x\"\"\" ", "y"}));
  EXPECT_EQ(messages({"\"\"\"", "a"}), (Texts{"<pending>"}));
  EXPECT_EQ(messages({"a\\"}), (Texts{"<pending>"}));
}

class ConversationTest : public testing::Test {
 protected:
  const ModelText text_ = open_text(TANDEM_FIXTURES "/models/llama-9q3kv");

  std::string prompt(const Conversation& conversation) {
    return text_.tokenizer.decode(conversation.prompt(), false);
  }
};

TEST_F(ConversationTest, KeepsEveryMessage) {
  Conversation conversation(text_, "S");
  conversation.add("user", "a\nb");
  EXPECT_EQ(prompt(conversation),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n"
            "<|im_start|>assistant\n");
  conversation.add("assistant", "c");
  conversation.add("user", "d");
  EXPECT_EQ(prompt(conversation),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n"
            "<|im_start|>assistant\nc<|im_end|>\n<|im_start|>user\nd<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_TRUE(conversation.forget_oldest());
  EXPECT_EQ(prompt(conversation),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nd<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_FALSE(conversation.forget_oldest());
  conversation.drop_last();
  conversation.add("user", "e");
  conversation.clear();
  conversation.add("user", "f");
  EXPECT_EQ(prompt(conversation),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nf<|im_end|>\n"
            "<|im_start|>assistant\n");
}

TEST_F(ConversationTest, NeedsATemplate) {
  ModelText without = open_text(TANDEM_FIXTURES "/models/llama-9q3kv");
  without.templates.reset();
  EXPECT_THROW(Conversation(without, ""), ConfigError);
}

}  // namespace
}  // namespace tandem::launch
