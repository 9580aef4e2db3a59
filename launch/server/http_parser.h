// SPDX-License-Identifier: Apache-2.0
// From bytes to an HttpRequest, within limits, and from what was wrong to a status. Includes
// Boost.Beast, so only the server's own files include it. Stateless.
#pragma once

#include <boost/beast/http.hpp>

#include "launch/server/http_server.h"

namespace tandem::launch {

using HttpParser = boost::beast::http::request_parser<boost::beast::http::string_body>;

void limit(HttpParser& parser, const HttpLimits& limits);

HttpRequest plain(HttpParser::value_type&& message);

/// The status that tells a client what was wrong with its message; 0: it just went away.
int refusal(boost::system::error_code error);

}  // namespace tandem::launch
