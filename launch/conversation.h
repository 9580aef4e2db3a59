// SPDX-License-Identifier: Apache-2.0
// A chat's messages and the prompt that they make, and the joining of typed lines to messages.
// Rank 0 only; one thread.
#pragma once

#include <boost/json/array.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/model_source.h"
#include "runtime/text/chat_template.h"

namespace tandem::launch {

class Conversation {
 public:
  /// ConfigError when the model has no chat template. `text` outlives it; `system` may be empty.
  Conversation(const ModelText& text, const std::string& system);

  void add(const std::string& role, const std::string& content);
  void drop_last();
  /// Back to the system message.
  void clear();
  /// Forgets the oldest question and its answer; false when only the last question is left.
  bool forget_oldest();

  /// The whole conversation as the model wants it, ready for the answer.
  std::vector<std::int32_t> prompt() const;

 private:
  const ModelText& text_;
  runtime::ChatTemplate template_;
  boost::json::array messages_;
  std::size_t first_ = 0;  // messages before it are never forgotten
};

/// Joins lines to messages: a line that ends in a backslash goes on, and so does everything from a
/// line that begins with """ to one that ends with it.
class MessageReader {
 public:
  /// The message, once `line` completes one.
  std::optional<std::string> push(std::string line);
  bool pending() const { return pending_; }
  void reset() { *this = {}; }

 private:
  std::string text_;
  bool pending_ = false, quoted_ = false;
};

}  // namespace tandem::launch
