// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/load_client.h"

#include <chrono>
#include <exception>
#include <memory>

#include "kernels/device/error.h"
#include "launch/asio_names.h"
#include "launch/bench/sse.h"
#include "launch/bench/stream_answer.h"

namespace tandem::launch {

using Clock = std::chrono::steady_clock;

namespace {

http::request<http::string_body> message(const ServerAddress& server, http::verb verb,
                                         const std::string& path) {
  http::request<http::string_body> request(verb, server.prefix + path, 11);
  request.set(http::field::host, server.host + ":" + server.port);
  if (!server.api_key.empty()) request.set(http::field::authorization, "Bearer " + server.api_key);
  return request;
}

struct Connection {
  beast::tcp_stream stream;
  beast::flat_buffer buffer;
  bool used = false;
};
using ConnectionPtr = std::unique_ptr<Connection>;

class Load {
 public:
  Load(const ServerAddress& server, const LoadPlan& plan)
      : server_(server),
        plan_(plan),
        records_(plan.times_s.size()),
        slot_(io_, Timer::time_point::max()) {
    for (std::size_t i = 0; i < records_.size(); ++i) records_[i].scheduled_s = plan_.times_s[i];
  }

  std::vector<RequestRecord> run() {
    tcp::resolver resolver(io_);
    endpoints_ = resolver.resolve(server_.host, server_.port);
    start_ = Clock::now();
    std::exception_ptr fault;
    const auto keep = [&](std::exception_ptr error) {
      if (error && !fault) fault = error;
    };
    asio::co_spawn(io_, send_all(), keep);
    asio::co_spawn(io_, watch(), keep);
    io_.run();
    if (fault) std::rethrow_exception(fault);
    for (RequestRecord& record : records_) record.abandoned = record.end_s == 0;
    return std::move(records_);
  }

 private:
  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  /// Starts every request at its time, in order; only `max_concurrency` holds it back.
  asio::awaitable<void> send_all() {
    Timer timer(io_);
    for (std::size_t i = 0; i < records_.size(); ++i) {
      timer.expires_at(start_ + std::chrono::duration_cast<Clock::duration>(
                                    std::chrono::duration<double>(plan_.times_s[i])));
      error_code ignored;
      co_await timer.async_wait(into(ignored));
      while (plan_.max_concurrency > 0 && running_ >= plan_.max_concurrency)
        co_await slot_.async_wait(into(ignored));
      ++running_;
      ++state_.sent;
      asio::co_spawn(io_, one(i), asio::detached);
    }
  }

  asio::awaitable<void> watch() {
    Timer timer(io_);
    while (state_.done < static_cast<std::int64_t>(records_.size())) {
      timer.expires_after(std::chrono::milliseconds(100));
      error_code ignored;
      co_await timer.async_wait(into(ignored));
      state_.seconds = now();
      state_.total = static_cast<std::int64_t>(records_.size());
      if (plan_.enough && plan_.enough(records_, state_.seconds)) co_return io_.stop();
      if (!plan_.progress) continue;
      while (state_.due < static_cast<std::int64_t>(records_.size()) &&
             plan_.times_s[static_cast<std::size_t>(state_.due)] <= state_.seconds)
        ++state_.due;
      plan_.progress(state_);
    }
  }

  asio::awaitable<void> one(std::size_t i) {
    RequestRecord& record = records_[i];
    try {
      auto request = message(server_, http::verb::post, plan_.path);
      request.set(http::field::content_type, "application/json");
      request.body() = plan_.body(i);
      request.prepare_payload();
      record.sent_s = now();
      co_await exchange(request, record);
    } catch (const std::exception& error) {
      record.error = error.what();
    }
    record.end_s = record.ok() ? record.pieces.back().at_s : now();
    --running_;
    ++state_.done;
    if (!record.ok()) ++state_.failed;
    slot_.cancel();
  }

  /// Sends on a kept connection, or on a new one when the server has closed that meanwhile.
  asio::awaitable<void> exchange(const http::request<http::string_body>& request,
                                 RequestRecord& record) {
    while (true) {
      error_code error;
      ConnectionPtr connection;
      const bool kept = !idle_.empty();
      if (kept) {
        connection = std::move(idle_.back());
        idle_.pop_back();
      } else {
        connection = std::make_unique<Connection>(Connection{beast::tcp_stream(io_), {}});
        connection->stream.expires_after(std::chrono::seconds(30));
        co_await connection->stream.async_connect(endpoints_, into(error));
        if (!error) connection->stream.socket().set_option(tcp::no_delay(true), error);
      }
      http::response_parser<http::buffer_body> parser;
      parser.body_limit(boost::none);
      if (!error) {
        connection->stream.expires_after(std::chrono::duration_cast<Clock::duration>(
            std::chrono::duration<double>(plan_.timeout_s)));
        co_await http::async_write(connection->stream, request, into(error));
      }
      if (!error)
        co_await http::async_read_header(connection->stream, connection->buffer, parser,
                                         into(error));
      if (error && kept && error != beast::error::timeout) continue;
      if (error) {
        record.error = error.message();
        co_return;
      }
      co_await read(*connection, parser, record);
      if (record.ok() && parser.get().keep_alive() && parser.is_done())
        idle_.push_back(std::move(connection));
      co_return;
    }
  }

  asio::awaitable<void> read(Connection& connection,
                             http::response_parser<http::buffer_body>& parser,
                             RequestRecord& record) {
    const int status = static_cast<int>(parser.get().result_int());
    SseReader events;
    StreamAnswer answer(record);
    std::string refusal;
    char bytes[16384];
    while (!parser.is_done()) {
      parser.get().body().data = bytes;
      parser.get().body().size = sizeof bytes;
      error_code error;
      co_await http::async_read_some(connection.stream, connection.buffer, parser, into(error));
      if (error && error != http::error::need_buffer) {
        record.error = error.message();
        co_return;
      }
      const std::string_view got(bytes, sizeof bytes - parser.get().body().size);
      if (status != 200)
        refusal += got;
      else
        events.push(got, [&](const std::string& data) { answer.take(data, now()); });
    }
    if (status != 200)
      record.error = error_text(status, refusal);
    else
      answer.finish();
  }

  const ServerAddress& server_;
  const LoadPlan& plan_;
  asio::io_context io_{1};  ///< Goes last, and what was abandoned with it.
  tcp::resolver::results_type endpoints_;
  std::vector<RequestRecord> records_;
  std::vector<ConnectionPtr> idle_;
  Timer slot_;  ///< Cancelled when a request has ended.
  std::int64_t running_ = 0;
  LoadState state_;
  Clock::time_point start_;
};

}  // namespace

ServerAddress parse_base_url(const std::string& url) {
  TANDEM_REQUIRE(url.rfind("https://", 0) != 0, "--base-url ", url,
                 " needs TLS, which this client does not speak; name an http:// address");
  const std::string rest = url.rfind("http://", 0) == 0 ? url.substr(7) : url;
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  ServerAddress address;
  const std::string authority = rest.substr(0, slash);
  address.prefix = rest.substr(slash);
  while (!address.prefix.empty() && address.prefix.back() == '/') address.prefix.pop_back();
  const std::size_t colon = authority.rfind(':');
  const bool has_port =
      colon != std::string::npos && authority.find(']', colon) == std::string::npos;
  address.host = authority.substr(0, has_port ? colon : authority.size());
  address.port = has_port ? authority.substr(colon + 1) : "80";
  if (address.host.size() > 2 && address.host.front() == '[')
    address.host = address.host.substr(1, address.host.size() - 2);
  TANDEM_REQUIRE(!address.host.empty() && !address.port.empty() &&
                     address.port.find_first_not_of("0123456789") == std::string::npos &&
                     address.port.size() <= 5 && std::stoi(address.port) <= 65535,
                 "--base-url ", url, " is not an address; write http://HOST:PORT");
  return address;
}

HttpAnswer http_get(const ServerAddress& server, const std::string& path) {
  try {
    asio::io_context io;
    tcp::resolver resolver(io);
    beast::tcp_stream stream(io);
    stream.connect(resolver.resolve(server.host, server.port));
    auto request = message(server, http::verb::get, path);
    http::write(stream, request);
    beast::flat_buffer buffer;
    http::response<http::string_body> answer;
    http::read(stream, buffer, answer);
    return {static_cast<int>(answer.result_int()), std::move(answer.body())};
  } catch (const boost::system::system_error& error) {
    throw ConfigError(concat("cannot reach http://", server.host, ":", server.port, " (",
                             error.code().message(),
                             "); start the server first, or name another --base-url"));
  }
}

std::vector<RequestRecord> run_load(const ServerAddress& server, const LoadPlan& plan) {
  return Load(server, plan).run();
}

}  // namespace tandem::launch
