// SPDX-License-Identifier: Apache-2.0
#include "launch/server/api_error.h"

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

namespace tandem::launch {
namespace {

const char* error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "service_unavailable_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

}  // namespace

ApiError::ApiError(int status, const std::string& message, std::string param)
    : std::runtime_error(message), status_(status), param_(std::move(param)) {}

HttpResponse ApiError::response() const {
  boost::json::object error;
  error["message"] = what();
  error["type"] = error_type(status_);
  error["param"] = param_.empty() ? boost::json::value(nullptr) : boost::json::value(param_);
  error["code"] = status_;
  HttpResponse response;
  response.status = status_;
  response.body = boost::json::serialize(boost::json::object{{"error", error}});
  if (status_ == 429 || status_ == 503) response.headers.emplace_back("Retry-After", "1");
  if (status_ == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace tandem::launch
