// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 on one thread (Boost.Beast coroutines): connections, limits and deadlines, whole and
// streamed answers. The handler, everything given to `post` and all calls of an HttpExchange run
// on that thread; only `post`, `drain` and `stop` are for other threads. A client that
// sends too much, too slowly, or does not read what it asked for is answered with an error or cut.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "launch/server/http_message.h"

namespace tandem::launch {

struct HttpLimits {
  std::size_t max_header_bytes = 16 << 10;
  std::size_t max_body_bytes = 16 << 20;
  std::size_t max_unsent_bytes = 4 << 20;  ///< Of one answer; a client that falls behind is cut.
  std::size_t max_connections = 2048;
  std::chrono::seconds idle{75};   ///< From the last answer to the end of the next header.
  std::chrono::seconds body{60};   ///< To receive a body.
  std::chrono::seconds write{30};  ///< To send what is ready.
};

/// One request and its answer. Kept alive by whoever answers; outliving the connection is fine.
class HttpExchange {
 public:
  const HttpRequest& request() const;

  /// The whole answer; nothing may follow.
  void reply(HttpResponse response);

  /// An answer in pieces: status 200, then `write` as often as wanted, then `end`.
  void begin_stream(const std::string& content_type);
  void write(std::string_view piece);
  void end();

  /// Called once if the client leaves, or is cut, before the answer is complete.
  void on_disconnect(std::function<void()> callback);

 private:
  friend struct HttpSession;
  struct State;
  explicit HttpExchange(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

class HttpServer {
 public:
  using Handler = std::function<void(std::shared_ptr<HttpExchange>)>;
  using Refused = std::function<void(int status)>;

  /// Binds `host` (a name or an address) and `port` (0: any free one); ConfigError when that is
  /// not possible. Serving begins with `start`. `handler` must not throw; `refused` hears of what
  /// is answered with an error without it.
  HttpServer(
      const std::string& host, std::uint16_t port, HttpLimits limits, Handler handler,
      Refused refused = [](int) {});
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();

  std::uint16_t port() const;
  void start();

  /// Cuts what is left and ends the thread. Work posted later is never run.
  void stop();

  /// Runs `work` on the server's thread, soon.
  void post(std::function<void()> work);

  /// Calls `callback` on the server's thread for each SIGTERM or SIGINT from now on.
  void on_signal(std::function<void()> callback);

  /// Waits until every answer that was begun has been sent, `patience` at most.
  void drain(std::chrono::milliseconds patience);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// How much of `bytes` is one HTTP request, parsed with the server's limits, without a socket:
/// status 0 for a complete request (then in `request`), -1 for an incomplete one, else the HTTP
/// status of the refusal.
int parse_http_request(std::string_view bytes, const HttpLimits& limits, HttpRequest* request);

}  // namespace tandem::launch
