// SPDX-License-Identifier: Apache-2.0
// Errors of the HTTP interface in OpenAI's form: {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <stdexcept>
#include <string>

#include "launch/server/http_message.h"

namespace tandem::launch {

class ApiError : public std::runtime_error {
 public:
  /// `param` is the request's field at fault, or "".
  ApiError(int status, const std::string& message, std::string param = "");
  int status() const { return status_; }
  HttpResponse response() const;

 private:
  int status_;
  std::string param_;
};

}  // namespace tandem::launch
