// SPDX-License-Identifier: Apache-2.0
#include "launch/server/http_parser.h"

#include <boost/asio/buffer.hpp>

namespace tandem::launch {

namespace http = boost::beast::http;
using boost::system::error_code;

void limit(HttpParser& parser, const HttpLimits& limits) {
  parser.header_limit(static_cast<std::uint32_t>(limits.max_header_bytes));
  parser.body_limit(limits.max_body_bytes);
}

HttpRequest plain(HttpParser::value_type&& message) {
  HttpRequest request;
  request.method = std::string(message.method_string());
  const std::string target(message.target());
  const std::size_t question = target.find('?');
  request.path = target.substr(0, question);
  if (question != std::string::npos) request.query = target.substr(question + 1);
  request.authorization = std::string(message[http::field::authorization]);
  request.body = std::move(message.body());
  return request;
}

int refusal(error_code error) {
  if (error == http::error::header_limit) return 431;
  if (error == http::error::body_limit) return 413;
  if (error == http::error::end_of_stream || error == http::error::partial_message) return 0;
  return error.category() == make_error_code(http::error::bad_method).category() ? 400 : 0;
}

int parse_http_request(std::string_view bytes, const HttpLimits& limits, HttpRequest* request) {
  HttpParser parser;
  limit(parser, limits);
  parser.eager(true);
  error_code error;
  while (!parser.is_done() && !bytes.empty()) {
    const std::size_t used = parser.put(boost::asio::buffer(bytes), error);
    if (error == http::error::need_more) return -1;
    if (error) return refusal(error) == 0 ? 400 : refusal(error);
    bytes.remove_prefix(used);
  }
  if (!parser.is_done()) return -1;
  *request = plain(parser.release());
  return 0;
}

}  // namespace tandem::launch
