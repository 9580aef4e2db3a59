// SPDX-License-Identifier: Apache-2.0
// What a request asks and what goes back, without any of HTTP's plumbing. Plain values.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tandem::launch {

struct HttpRequest {
  std::string method, path, query;  ///< `path` is as sent, up to the `?`.
  std::string authorization;        ///< The header's value, or "".
  std::string body;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};

}  // namespace tandem::launch
