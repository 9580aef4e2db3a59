// SPDX-License-Identifier: Apache-2.0
// Answers of the completion endpoints in OpenAI's form: whole objects, or server-sent events.
// Knows the request's id, time and model; keeps nothing else.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "launch/server/choice.h"

namespace tandem::launch {

struct Usage {
  std::int64_t prompt_tokens = 0, completion_tokens = 0;
};

class CompletionWriter {
 public:
  CompletionWriter(bool chat, std::string model);

  /// The whole answer; takes the choices' text.
  std::string whole(std::vector<Choice>& choices, const Usage& usage) const;

  /// The first event of a chat answer names the role.
  std::string role_event(int index) const;
  /// What is new of a choice; its end, when that has come, is marked as sent.
  std::string event(Choice& choice) const;
  std::string usage_event(const Usage& usage) const;
  static std::string done_event() { return "data: [DONE]\n\n"; }

 private:
  boost::json::object head(bool chunk) const;
  std::string piece(boost::json::object choice) const;

  bool chat_;
  std::string id_, model_;
  std::int64_t created_;
};

}  // namespace tandem::launch
