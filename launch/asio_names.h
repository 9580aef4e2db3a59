// SPDX-License-Identifier: Apache-2.0
// Short names for what the HTTP server and the load client are written in: Boost.Asio coroutines
// that report errors in an error_code.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

namespace tandem::launch {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Timer = asio::steady_timer;

/// Awaits an operation and puts its fault into `error`, where an exception would be thrown.
inline auto into(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

}  // namespace tandem::launch
