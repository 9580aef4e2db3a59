// SPDX-License-Identifier: Apache-2.0
// One HTTP request for completions from its acceptance to its last byte: submits the token
// requests, turns tokens into text, streams or collects, cancels when the client leaves or a stop
// string is found. Server's thread only, except that the engine loop's sinks hand their tokens to
// a TokenPump on the step thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "launch/server/choice.h"
#include "launch/server/completion_response.h"
#include "launch/server/http_server.h"
#include "launch/server/metrics.h"
#include "launch/server/served_model.h"
#include "runtime/engine_loop.h"

namespace tandem::launch {

class CompletionJob;

/// Carries tokens from the step thread to the server's thread with one hand-over per step.
class TokenPump {
 public:
  explicit TokenPump(HttpServer& server) : server_(server) {}
  void push(const std::shared_ptr<CompletionJob>& job, int prompt,
            const runtime::TokenEvent& event);

 private:
  struct Item {
    std::shared_ptr<CompletionJob> job;
    int prompt;
    runtime::TokenEvent event;
  };
  void drain();

  HttpServer& server_;
  std::mutex mutex_;
  std::vector<Item> items_;
};

class CompletionJob : public std::enable_shared_from_this<CompletionJob> {
 public:
  struct Services {
    HttpServer& server;
    runtime::EngineLoop& loop;
    TokenPump& pump;
    ServerMetrics& metrics;
    const ServedModel& model;
  };

  /// `on_end` is called once, when nothing of the job is left in the engine.
  CompletionJob(Services services, std::shared_ptr<HttpExchange> exchange,
                CompletionRequest request, std::function<void()> on_end);

  /// Submits; an ApiError or ConfigError of the first submission is thrown, nothing runs then.
  void start(std::vector<runtime::Request> requests);

  void receive(int prompt, const runtime::TokenEvent& event);
  void flush();  ///< Sends what the last `receive`s brought.

 private:
  using Clock = std::chrono::steady_clock;

  Choice& choice(int prompt, int sample);
  void observe(const Choice& choice);  ///< A token has come.
  void finish_choice(const Choice& choice);
  void send_pieces();
  void send_whole();
  void abandon();
  void end();

  Services services_;
  std::shared_ptr<HttpExchange> exchange_;
  CompletionRequest request_;
  CompletionWriter writer_;
  std::function<void()> on_end_;
  std::vector<runtime::RequestId> ids_;
  std::vector<std::vector<std::int32_t>> prompts_;  ///< Kept when their logprobs are wanted.
  std::vector<Choice> choices_;                     ///< Sample s of prompt p is number p * n + s.
  std::vector<Clock::time_point> first_token_, last_token_;
  Clock::time_point begun_ = Clock::now();
  Usage usage_;
  std::size_t running_ = 0;  ///< Choices that have not finished.
  bool ended_ = false, streaming_ = false;
};

}  // namespace tandem::launch
