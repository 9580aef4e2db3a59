// SPDX-License-Identifier: Apache-2.0
#include "launch/server/http_server.h"

#include <sys/socket.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/write.hpp>
#include <cstdio>
#include <future>
#include <optional>
#include <thread>

#include "kernels/device/error.h"
#include "kernels/device/log.h"
#include "launch/asio_names.h"
#include "launch/server/api_error.h"
#include "launch/server/http_parser.h"

namespace tandem::launch {

using Parser = HttpParser;

namespace {

HttpResponse refusal_response(int status) {
  switch (status) {
    case 413:
      return ApiError(status, "The request body is too large.").response();
    case 431:
      return ApiError(status, "The request header is too large.").response();
    default:
      return ApiError(400, "This is not a valid HTTP/1.1 request.").response();
  }
}

}  // namespace

/// Shared by the connection and whoever answers. Server's thread only.
struct HttpExchange::State {
  explicit State(const asio::any_io_executor& executor) {
    timer.emplace(executor, Timer::time_point::max());
  }

  HttpRequest request;
  std::optional<HttpResponse> whole;
  std::string stream_type;  ///< Not empty: an answer in pieces.
  std::string pieces;       ///< Not sent yet.
  bool ended = false, gone = false;
  std::size_t max_unsent_bytes = 0;
  std::function<void()> disconnected;
  /// Cancelled whenever something above changed. Only as long as the connection: an answer may
  /// outlive the server, a timer may not.
  std::optional<Timer> timer;

  bool idle() const { return !whole && pieces.empty() && stream_type.empty() && !ended && !gone; }
  void wake() {
    if (timer) timer->cancel();
  }
  void cut() {
    if (gone) return;
    gone = true;
    wake();
    if (const auto callback = std::exchange(disconnected, nullptr); callback && !ended) callback();
  }
};

const HttpRequest& HttpExchange::request() const { return state_->request; }

void HttpExchange::reply(HttpResponse response) {
  if (state_->ended) return;
  state_->whole = std::move(response);
  state_->ended = true;
  state_->wake();
}

void HttpExchange::begin_stream(const std::string& content_type) {
  state_->stream_type = content_type;
  state_->wake();
}

void HttpExchange::write(std::string_view piece) {
  if (state_->gone) return;
  state_->pieces += piece;
  state_->wake();
  if (state_->pieces.size() > state_->max_unsent_bytes) state_->cut();
}

void HttpExchange::end() {
  state_->ended = true;
  state_->wake();
}

void HttpExchange::on_disconnect(std::function<void()> callback) {
  if (state_->gone) {
    callback();
  } else {
    state_->disconnected = std::move(callback);
  }
}

/// One connection: a coroutine that reads a request, waits for its answer, sends it, and so on.
struct HttpSession {
  using StatePtr = std::shared_ptr<HttpExchange::State>;
  struct EndTimer {  ///< Also where the coroutine ends with the server.
    void operator()(HttpExchange::State* state) const { state->timer.reset(); }
  };

  beast::tcp_stream stream;
  const HttpLimits& limits;
  const HttpServer::Handler& handler;
  const HttpServer::Refused& refused;
  std::size_t& open_answers;
  beast::flat_buffer buffer;

  asio::awaitable<void> run() {
    while (co_await serve_one()) {
    }
    error_code ignored;
    stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
  }

  /// False when the connection is over.
  asio::awaitable<bool> serve_one() {
    Parser parser;
    limit(parser, limits);
    error_code error;
    stream.expires_after(limits.idle);
    co_await http::async_read_header(stream, buffer, parser, into(error));
    if (!error) {
      stream.expires_after(limits.body);
      if (beast::iequals(parser.get()[http::field::expect], "100-continue")) {
        constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
        co_await asio::async_write(stream, asio::buffer(kContinue), into(error));
      }
    }
    if (!error) co_await http::async_read(stream, buffer, parser, into(error));
    if (error) {
      const int status = refusal(error);
      if (status != 0) {
        refused(status);
        co_await send_whole(refusal_response(status), false, 11, false);
      }
      co_return false;
    }
    const bool keep_alive = parser.get().keep_alive();
    const unsigned version = parser.get().version();
    auto state = std::make_shared<HttpExchange::State>(stream.get_executor());
    const std::unique_ptr<HttpExchange::State, EndTimer> connected(state.get());
    state->max_unsent_bytes = limits.max_unsent_bytes;
    state->request = plain(parser.release());
    ++open_answers;
    const bool alive = co_await answer(state, keep_alive, version);
    --open_answers;
    if (!alive) state->cut();
    state->disconnected = nullptr;
    co_return alive&& keep_alive;
  }

  asio::awaitable<bool> answer(const StatePtr& state, bool keep_alive, unsigned version) {
    asio::cancellation_signal stop_watching;
    watch(state, stop_watching);
    handler(std::shared_ptr<HttpExchange>(new HttpExchange(state)));
    while (state->idle()) {
      error_code woken;
      co_await state->timer->async_wait(into(woken));
    }
    bool alive = !state->gone;
    if (alive && state->whole) {
      const bool head = state->request.method == "HEAD";
      alive = co_await send_whole(std::move(*state->whole), keep_alive, version, head);
    } else if (alive) {
      alive = co_await send_stream(state, keep_alive, version);
    }
    stop_watching.emit(asio::cancellation_type::terminal);
    co_return alive;
  }

  /// Tells the answering side when the client closes its end while it waits. Bytes that arrive
  /// early (pipelining) end the watch: they are the next request.
  void watch(const StatePtr& state, asio::cancellation_signal& stop) {
    const std::weak_ptr<HttpExchange::State> weak = state;
    const int socket = stream.socket().native_handle();
    stream.socket().async_wait(
        tcp::socket::wait_read,
        asio::bind_cancellation_slot(stop.slot(), [weak, socket](error_code error) {
          const StatePtr waiting = weak.lock();
          if (error || !waiting) return;
          char byte = 0;
          const auto n = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
          if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) waiting->cut();
        }));
  }

  asio::awaitable<bool> send_whole(HttpResponse response, bool keep_alive, unsigned version,
                                   bool head) {
    http::response<http::string_body> message(
        http::int_to_status(static_cast<unsigned>(response.status)), version);
    message.set(http::field::content_type, response.content_type);
    for (const auto& [name, value] : response.headers) message.set(name, value);
    message.keep_alive(keep_alive);
    message.content_length(response.body.size());
    if (!head) message.body() = std::move(response.body);
    error_code error;
    stream.expires_after(limits.write);
    co_await http::async_write(stream, message, into(error));
    co_return !error;
  }

  asio::awaitable<bool> send_stream(const StatePtr& state, bool keep_alive, unsigned version) {
    const bool chunked = version >= 11;
    std::string out =
        chunked ? "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" : "HTTP/1.0 200 OK\r\n";
    out += "Content-Type: " + state->stream_type + "\r\nCache-Control: no-cache\r\n";
    out += keep_alive && chunked ? "\r\n" : "Connection: close\r\n\r\n";
    while (true) {
      if (!state->pieces.empty()) {
        char size[20];
        std::snprintf(size, sizeof size, "%zx\r\n", state->pieces.size());
        out += chunked ? size + std::exchange(state->pieces, {}) + "\r\n"
                       : std::exchange(state->pieces, {});
      }
      const bool last = state->ended;
      if (last && chunked) out += "0\r\n\r\n";
      if (!out.empty()) {
        error_code error;
        stream.expires_after(limits.write);
        co_await asio::async_write(stream, asio::buffer(out), into(error));
        if (error) co_return false;
        out.clear();
      }
      if (last) co_return chunked;
      while (state->pieces.empty() && !state->ended && !state->gone) {
        error_code woken;
        co_await state->timer->async_wait(into(woken));
      }
      if (state->gone) co_return false;
    }
  }
};

struct HttpServer::Impl {
  Impl(HttpLimits l, Handler h, Refused r)
      : limits(l), handler(std::move(h)), refused(std::move(r)) {}

  void bind(const std::string& host, std::uint16_t port);
  asio::awaitable<void> accept();
  static void refuse(tcp::socket& socket);
  asio::awaitable<void> serve(tcp::socket socket);
  void wait_for_signal(std::shared_ptr<std::function<void()>> callback);

  HttpLimits limits;
  Handler handler;
  Refused refused;
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  asio::signal_set signals{io};
  std::size_t connections = 0, open_answers = 0;
  std::thread thread;
};

void HttpServer::Impl::bind(const std::string& host, std::uint16_t port) {
  error_code error;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, error);
  TANDEM_REQUIRE(!error && !found.empty(), "--host ", host, " is not an address of this machine (",
                 error.message(), "); use 127.0.0.1 or 0.0.0.0.");
  const tcp::endpoint endpoint = *found.begin();
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  TANDEM_REQUIRE(error != boost::system::errc::address_not_available, "--host ", host,
                 " is not an address of this machine; use 127.0.0.1 or 0.0.0.0.");
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  TANDEM_REQUIRE(!error, "cannot listen on ", host, " port ", port, " (", error.message(),
                 "); choose another --port.");
}

/// One attempt to say why; what does not fit into the socket's buffer at once is not sent.
void HttpServer::Impl::refuse(tcp::socket& socket) {
  const HttpResponse refusal =
      ApiError(503, "Too many connections are open; try again.").response();
  std::string text = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: " +
                     refusal.content_type + "\r\n";
  for (const auto& [name, value] : refusal.headers) text += name + ": " + value + "\r\n";
  text += "Content-Length: " + std::to_string(refusal.body.size()) + "\r\n\r\n" + refusal.body;
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(text), ignored);
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

asio::awaitable<void> HttpServer::Impl::accept() {
  while (true) {
    error_code error;
    tcp::socket socket = co_await acceptor.async_accept(into(error));
    if (error == asio::error::operation_aborted) co_return;
    if (error) {
      // Most likely no file descriptor is left: wait until connections have ended.
      Timer pause(io, std::chrono::milliseconds(100));
      co_await pause.async_wait(into(error));
      continue;
    }
    if (connections >= limits.max_connections) {
      refused(503);
      refuse(socket);
      continue;
    }
    socket.set_option(tcp::no_delay(true), error);
    asio::co_spawn(io, serve(std::move(socket)), asio::detached);
  }
}

asio::awaitable<void> HttpServer::Impl::serve(tcp::socket socket) {
  ++connections;
  HttpSession session{beast::tcp_stream(std::move(socket)),
                      limits,
                      handler,
                      refused,
                      open_answers,
                      beast::flat_buffer(limits.max_header_bytes + limits.max_body_bytes)};
  try {
    co_await session.run();
  } catch (const std::exception& error) {
    log_error("a connection was given up: ", error.what());
  }
  --connections;
}

void HttpServer::Impl::wait_for_signal(std::shared_ptr<std::function<void()>> callback) {
  signals.async_wait([this, callback](error_code error, int) {
    if (error) return;
    (*callback)();
    wait_for_signal(callback);
  });
}

HttpServer::HttpServer(const std::string& host, std::uint16_t port, HttpLimits limits,
                       Handler handler, Refused refused)
    : impl_(std::make_unique<Impl>(limits, std::move(handler), std::move(refused))) {
  impl_->bind(host, port);
}

void HttpServer::stop() {
  impl_->io.stop();
  if (impl_->thread.joinable()) impl_->thread.join();
}

HttpServer::~HttpServer() { stop(); }

std::uint16_t HttpServer::port() const { return impl_->acceptor.local_endpoint().port(); }

void HttpServer::start() {
  asio::co_spawn(impl_->io, impl_->accept(), asio::detached);
  impl_->thread = std::thread([this] { impl_->io.run(); });
}

void HttpServer::post(std::function<void()> work) { asio::post(impl_->io, std::move(work)); }

void HttpServer::on_signal(std::function<void()> callback) {
  impl_->signals.add(SIGTERM);
  impl_->signals.add(SIGINT);
  impl_->wait_for_signal(std::make_shared<std::function<void()>>(std::move(callback)));
}

void HttpServer::drain(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (std::chrono::steady_clock::now() < deadline) {
    std::promise<std::size_t> open;
    post([&] { open.set_value(impl_->open_answers); });
    if (open.get_future().get() == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace tandem::launch
