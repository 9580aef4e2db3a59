// SPDX-License-Identifier: Apache-2.0
// The OpenAI-compatible server of rank 0: routes, access, limits on what waits, start-up, drain.
// Listens from construction on (so that a port in use is found before the model is loaded) and
// answers 503 until `ready`. Its own threads serve; public functions may be called from any thread.
// Order: destroy it after the engine loop has returned and before the loop goes.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/server/completion_job.h"
#include "launch/server/http_server.h"
#include "launch/server/metrics.h"
#include "launch/server/served_model.h"
#include "launch/server/worker.h"
#include "runtime/engine_loop.h"

namespace tandem::launch {

struct ApiConfig {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;
  std::string api_key;                ///< "": everybody may ask.
  std::int64_t max_sequences = 1024;  ///< Running and waiting; more is answered with 429.
  HttpLimits http;
};

/// What the status page shows of a rank.
struct ServedRank {
  std::string host, device;
};
/// What each rank is doing now, in a few words. Any thread.
using RankStates = std::function<std::vector<std::string>()>;

class ApiServer {
 public:
  /// ConfigError when the address cannot be used.
  explicit ApiServer(ApiConfig config);
  ~ApiServer();

  std::uint16_t port() const { return server_.port(); }

  /// From now on requests are served. `loop` must outlive the server's use of it.
  void ready(ServedModel model, runtime::EngineLoop& loop, std::vector<ServedRank> ranks,
             RankStates states);

  /// No new requests from now on; `on_empty` is called once, on the server's thread, when all
  /// that was accepted has ended.
  void drain(std::function<void()> on_empty);

  /// `callback` is called with 1, 2, ... for each SIGTERM or SIGINT.
  void on_signal(std::function<void(int)> callback);

  /// Waits until the last bytes have been sent, a few seconds at most.
  void flush();

 private:
  using Exchange = std::shared_ptr<HttpExchange>;
  struct Live {
    ServedModel model;
    runtime::EngineLoop* loop;
    std::vector<ServedRank> ranks;
    RankStates states;
    TokenPump pump;
  };

  void handle(const Exchange& exchange);
  void route(const Exchange& exchange);
  void authorize(const HttpRequest& request) const;
  void reply(const Exchange& exchange, HttpResponse response);
  void reply_json(const Exchange& exchange, const boost::json::object& body);
  /// Runs `work` on the worker; what it throws becomes the answer.
  void prepare(const Exchange& exchange, std::function<void()> work);
  void fail(const Exchange& exchange, std::exception_ptr error);

  void complete(const Exchange& exchange, bool chat);
  void start_job(const Exchange& exchange, CompletionRequest request,
                 std::vector<runtime::Request> requests);
  void end_work(std::int64_t sequences);
  void tokenize(const Exchange& exchange);
  void detokenize(const Exchange& exchange);
  boost::json::object models() const;
  boost::json::object status() const;

  ApiConfig config_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  ServerMetrics metrics_;
  std::unique_ptr<Live> live_;  ///< Null until ready.
  std::int64_t sequences_ = 0;  ///< Of running jobs.
  std::int64_t accepted_ = 0;   ///< Requests being prepared or running.
  bool draining_ = false;
  std::function<void()> on_empty_;
  int signals_ = 0;
  HttpServer server_;
  Worker worker_;  // last: it uses all of the above
};

}  // namespace tandem::launch
