// SPDX-License-Identifier: Apache-2.0
// Any bytes as an HTTP request, and its body as each endpoint's JSON.
#include <cstdint>
#include <string_view>

#include "launch/server/api_error.h"
#include "launch/server/completion_request.h"
#include "launch/server/http_server.h"

namespace {

using namespace tandem::launch;

void read_body(const std::string& body) {
  for (const bool chat : {false, true}) {
    try {
      const auto request = parse_completion_request(parse_body(body), chat, {});
      request.params.validate(1000);
    } catch (const ApiError& error) {
      if (parse_body(error.response().body).at("error").as_object().size() != 4) __builtin_trap();
    } catch (const tandem::ConfigError&) {
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  HttpLimits limits;
  limits.max_body_bytes = 20000;
  HttpRequest request;
  const int status = parse_http_request(bytes, limits, &request);
  if (status == 0 && request.body.size() > limits.max_body_bytes) __builtin_trap();
  if (status == 0) read_body(request.body);
  read_body(std::string(bytes));
  return 0;
}
