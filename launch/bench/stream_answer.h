// SPDX-License-Identifier: Apache-2.0
// Reads the events of a streamed completion or chat answer into a RequestRecord. Plain value.
#pragma once

#include <string>

#include "launch/bench/load_client.h"

namespace tandem::launch {

class StreamAnswer {
 public:
  explicit StreamAnswer(RequestRecord& record) : record_(record) {}

  /// One event's data at `now_s`. Pieces of text, or of `token_ids` where the server sends them,
  /// count; so does what `usage` says in the end.
  void take(const std::string& data, double now_s);
  /// The answer is over: sets the error when it was not complete.
  void finish();

 private:
  RequestRecord& record_;
  bool done_ = false, has_usage_ = false;
};

/// "HTTP 429: Too many requests" of an error in OpenAI's form, or of anything else.
std::string error_text(int status, const std::string& body);

}  // namespace tandem::launch
