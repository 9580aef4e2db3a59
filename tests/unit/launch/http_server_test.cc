// SPDX-License-Identifier: Apache-2.0
// The HTTP plumbing over real sockets, with a handler that knows nothing of models.
#include "launch/server/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "kernels/device/error.h"

namespace tandem::launch {
namespace {

using namespace std::chrono_literals;

/// For what happens soon, also on a crowded machine.
constexpr auto kPatience = 20s;

/// A blocking client connection; reads give up after `kPatience`.
class Client {
 public:
  explicit Client(std::uint16_t port, int receive_buffer_bytes = 0)
      : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer_bytes > 0) {
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes,
                   sizeof receive_buffer_bytes);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~Client() { close(); }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  Client& send(const std::string& text) {
    std::size_t sent = 0;
    while (sent < text.size()) {
      const auto n = ::send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) break;
      sent += static_cast<std::size_t>(n);
    }
    return *this;
  }
  /// Reads until `text` ends with `end`, the peer closes, or `kPatience` passes.
  std::string read_until(const std::string& end) {
    std::string text;
    char byte = 0;
    while (!text.ends_with(end)) {
      pollfd wait{socket_, POLLIN, 0};
      if (::poll(&wait, 1, kPatience / 1ms) <= 0 || ::recv(socket_, &byte, 1, 0) <= 0) break;
      text += byte;
    }
    return text;
  }
  std::string read_all() { return read_until("\xff never sent"); }
  bool closed_by_peer() {
    pollfd wait{socket_, POLLIN, 0};
    char byte = 0;
    return ::poll(&wait, 1, kPatience / 1ms) == 1 && ::recv(socket_, &byte, 1, 0) <= 0;
  }

 private:
  int socket_;
};

std::string get(const std::string& path, const std::string& headers = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n";
}

std::string post(const std::string& path, const std::string& body) {
  return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

bool soon(const std::function<bool()>& condition) {
  for (int i = 0; i < kPatience / 10ms; ++i, std::this_thread::sleep_for(10ms)) {
    if (condition()) return true;
  }
  return false;
}

class HttpServerTest : public ::testing::Test {
 protected:
  static HttpLimits limits() {
    HttpLimits limits;
    limits.max_header_bytes = 2048;
    limits.max_body_bytes = 10000;
    limits.max_unsent_bytes = 100000;
    limits.idle = 1s;
    limits.body = 1s;
    limits.write = 1s;
    return limits;
  }

  HttpServerTest()
      : server_("127.0.0.1", 0, limits(),
                [this](const std::shared_ptr<HttpExchange>& exchange) { handle(exchange); }) {
    server_.start();
  }

  void handle(const std::shared_ptr<HttpExchange>& exchange) {
    const HttpRequest& request = exchange->request();
    exchange->on_disconnect([this] { ++disconnects_; });
    if (request.path == "/echo") {
      exchange->reply(
          {200,
           "text/plain",
           request.method + "|" + request.query + "|" + request.authorization + "|" + request.body,
           {{"X-More", "yes"}}});
    } else if (request.path == "/stream") {
      exchange->begin_stream("text/event-stream");
      exchange->write("one\n");
      server_.post([exchange] {
        exchange->write("two\n");
        exchange->end();
      });
    } else if (request.path == "/flood") {
      exchange->begin_stream("text/plain");
      flood(exchange, 4000);
    } else {
      waiting_ = exchange;  // answered by nobody
      is_waiting_ = true;
    }
  }

  void flood(const std::shared_ptr<HttpExchange>& exchange, int left) {
    if (left == 0 || disconnects_ > 0) return;
    exchange->write(std::string(10000, 'x'));
    server_.post([this, exchange, left] { flood(exchange, left - 1); });
  }

  std::atomic<int> disconnects_{0};
  std::atomic<bool> is_waiting_{false};
  std::shared_ptr<HttpExchange> waiting_;
  HttpServer server_;
};

TEST_F(HttpServerTest, AnswersSeveralRequestsOfOneConnection) {
  Client client(server_.port());
  client.send(post("/echo?a=1", "hello"));
  std::string answer = client.read_until("hello");
  EXPECT_NE(answer.find("HTTP/1.1 200 OK\r\n"), std::string::npos) << answer;
  EXPECT_NE(answer.find("X-More: yes\r\n"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("POST|a=1||hello"));
  client.send(get("/echo", "Authorization: Bearer k\r\n"));
  EXPECT_TRUE(client.read_until("Bearer k|").ends_with("GET||Bearer k|"));
  client.send(get("/echo?1") + get("/echo?2"));
  EXPECT_TRUE(client.read_until("GET|1||").ends_with("GET|1||"));
  EXPECT_TRUE(client.read_until("GET|2||").ends_with("GET|2||")) << "pipelined";
  client.send(get("/echo", "Connection: close\r\n"));
  EXPECT_TRUE(client.read_all().ends_with("GET|||"));
}

TEST_F(HttpServerTest, StreamsInChunks) {
  Client client(server_.port());
  client.send(get("/stream"));
  const std::string answer = client.read_until("0\r\n\r\n");
  EXPECT_NE(answer.find("Transfer-Encoding: chunked\r\n"), std::string::npos);
  EXPECT_NE(answer.find("Content-Type: text/event-stream\r\n"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("\r\n\r\n4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\n") ||
              answer.ends_with("\r\n\r\n8\r\none\ntwo\n\r\n0\r\n\r\n"))
      << answer;
  client.send(get("/echo"));
  EXPECT_TRUE(client.read_until("GET|||").ends_with("GET|||")) << "the connection goes on";
}

TEST_F(HttpServerTest, SpeaksHttp10) {
  Client client(server_.port());
  client.send("GET /stream HTTP/1.0\r\n\r\n");
  const std::string answer = client.read_all();
  EXPECT_EQ(answer.find("chunked"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("\r\n\r\none\ntwo\n")) << answer;
}

TEST_F(HttpServerTest, WrongMessagesAreRefusedInJson) {
  const auto answer = [&](const std::string& message) {
    Client client(server_.port());
    client.send(message);
    return client.read_all();
  };
  const std::string bad = answer("this is not http\r\n\r\n");
  EXPECT_TRUE(bad.starts_with("HTTP/1.1 400 ")) << bad;
  EXPECT_NE(bad.find("{\"error\":{\"message\":"), std::string::npos);
  EXPECT_TRUE(answer("GET / HTTP/1.1\r\nX: " + std::string(5000, 'a') + "\r\n\r\n")
                  .starts_with("HTTP/1.1 431 "));
  EXPECT_TRUE(answer(post("/echo", std::string(10001, 'a'))).starts_with("HTTP/1.1 413 "));
  EXPECT_TRUE(
      answer("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n")
          .starts_with("HTTP/1.1 4"));
  EXPECT_TRUE(answer("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                     "ffffffffff\r\n")
                  .starts_with("HTTP/1.1 4"));
  EXPECT_TRUE(answer("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                     "3\r\nabc\r\n0\r\n\r\n")
                  .find("POST|||abc") != std::string::npos);
}

TEST_F(HttpServerTest, ExpectContinueIsHonoured) {
  Client client(server_.port());
  client.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ok");
  EXPECT_TRUE(client.read_until("|ok").ends_with("POST|||ok"));
}

TEST_F(HttpServerTest, SlowSendersAreCut) {
  Client silent(server_.port()), header(server_.port()), body(server_.port());
  header.send("GET / HT");
  body.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_TRUE(silent.closed_by_peer());
  EXPECT_TRUE(header.closed_by_peer());
  EXPECT_TRUE(body.closed_by_peer());
}

TEST_F(HttpServerTest, AClientThatLeavesIsNoticedWhileItsAnswerIsMade) {
  Client client(server_.port());
  client.send(get("/wait"));
  ASSERT_TRUE(soon([&] { return is_waiting_.load(); }));
  EXPECT_EQ(disconnects_, 0);
  client.close();
  EXPECT_TRUE(soon([&] { return disconnects_ == 1; }));
}

TEST_F(HttpServerTest, AClientThatDoesNotReadIsCut) {
  Client client(server_.port(), 4096);
  client.send(get("/flood"));
  EXPECT_TRUE(soon([&] { return disconnects_ == 1; }));
}

TEST_F(HttpServerTest, DrainWaitsForAnswers) {
  Client client(server_.port());
  client.send(get("/wait"));
  ASSERT_TRUE(soon([&] { return is_waiting_.load(); }));
  const auto begun = std::chrono::steady_clock::now();
  std::thread answerer([&] {
    std::this_thread::sleep_for(100ms);
    server_.post([&] { waiting_->reply({200, "text/plain", "late", {}}); });
  });
  server_.drain(60s);
  const auto waited = std::chrono::steady_clock::now() - begun;
  answerer.join();
  EXPECT_GE(waited, 90ms);
  EXPECT_LT(waited, 30s) << "the answer ends the wait";
  EXPECT_TRUE(client.read_until("late").ends_with("late"));
}

/// Found by AddressSanitizer: an answer's timer belonged to the server.
TEST(HttpServer, AnAnswerMayOutliveItsServer) {
  std::shared_ptr<HttpExchange> waiting, streaming;
  std::atomic<int> taken = 0;
  {
    HttpServer server("127.0.0.1", 0, {}, [&](const std::shared_ptr<HttpExchange>& exchange) {
      (exchange->request().path == "/stream" ? streaming : waiting) = exchange;
      if (exchange == streaming) exchange->begin_stream("text/plain");
      ++taken;
    });
    server.start();
    Client first(server.port()), second(server.port());
    first.send(get("/wait"));
    second.send(get("/stream"));
    ASSERT_TRUE(soon([&] { return taken == 2; }));
  }
  waiting->reply({200, "text/plain", "late", {}});
  streaming->write("late");
  streaming->end();
}

TEST(HttpServer, AnAddressInUseIsAConfigError) {
  HttpServer first("127.0.0.1", 0, {}, [](const auto&) {});
  try {
    HttpServer second("127.0.0.1", first.port(), {}, [](const auto&) {});
    ADD_FAILURE() << "bound twice";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("--port"), std::string::npos);
  }
  for (const char* host : {"no.such.host.invalid", "192.0.2.1"}) {
    try {
      HttpServer server(host, 0, {}, [](const auto&) {});
      FAIL() << host << " is no address of this machine";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("--host"), std::string::npos) << error.what();
    }
  }
}

TEST(HttpServer, ParsesWithoutASocket) {
  HttpRequest request;
  EXPECT_EQ(parse_http_request(post("/a?b", "c"), {}, &request), 0);
  EXPECT_EQ(request.path + request.query + request.body, "/abc");
  EXPECT_EQ(parse_http_request("GET / HT", {}, &request), -1);
  EXPECT_EQ(parse_http_request("\x01\x02", {}, &request), 400);
}

}  // namespace
}  // namespace tandem::launch
