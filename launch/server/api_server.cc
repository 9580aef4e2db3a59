// SPDX-License-Identifier: Apache-2.0
#include "launch/server/api_server.h"

#include <boost/json/serialize.hpp>
#include <exception>
#include <utility>

#include "kernels/device/error.h"
#include "kernels/device/log.h"
#include "launch/server/api_error.h"
#include "launch/server/json_body.h"
#include "launch/server/status_page.h"
#include "launch/version.h"

namespace tandem::launch {
namespace json = boost::json;
namespace {

/// Takes equal time wherever the texts differ.
bool equal_secrets(const std::string& a, const std::string& b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i] ^ b[i % (b.size() + 1)]);
  }
  return difference == 0;
}

bool is_open(const std::string& path) {
  return path == "/" || path == "/health" || path == "/version" || path == "/metrics" ||
         path == "/status";
}

void check_model(const std::string& asked, const std::string& served) {
  if (asked.empty() || asked == served) return;
  throw ApiError(404, "The model `" + asked + "` does not exist; this server has `" + served + "`.",
                 "model");
}

/// The field that `message` begins with: what is wrong with sampling is said in words that fit
/// flags and fields alike.
std::string first_field(const json::object& body, const std::string& message) {
  const std::string word = message.substr(0, message.find(' '));
  return body.contains(word) ? word : "";
}

}  // namespace

ApiServer::ApiServer(ApiConfig config)
    : config_(std::move(config)),
      server_(
          config_.host, config_.port, config_.http,
          [this](const Exchange& exchange) { handle(exchange); },
          [this](int status) { ++metrics_.responses[status]; }) {
  server_.start();
}

ApiServer::~ApiServer() {
  // Both threads use what is alive: they end first, then the jobs that still wait for tokens.
  worker_.stop();
  server_.stop();
  live_.reset();
}

void ApiServer::ready(ServedModel model, runtime::EngineLoop& loop, std::vector<ServedRank> ranks,
                      RankStates states) {
  auto live = std::make_shared<std::unique_ptr<Live>>(
      new Live{std::move(model), &loop, std::move(ranks), std::move(states), TokenPump(server_)});
  server_.post([this, live] { live_ = std::move(*live); });
}

void ApiServer::drain(std::function<void()> on_empty) {
  server_.post([this, on_empty] {
    draining_ = true;
    on_empty_ = on_empty;
    if (accepted_ == 0) std::exchange(on_empty_, nullptr)();
  });
}

void ApiServer::on_signal(std::function<void(int)> callback) {
  server_.on_signal([this, callback] { callback(++signals_); });
}

void ApiServer::flush() { server_.drain(std::chrono::seconds(5)); }

void ApiServer::handle(const Exchange& exchange) {
  try {
    route(exchange);
  } catch (...) {
    fail(exchange, std::current_exception());
  }
}

void ApiServer::route(const Exchange& exchange) {
  const HttpRequest& request = exchange->request();
  const std::string& path = request.path;
  authorize(request);
  const bool post = path == "/v1/chat/completions" || path == "/v1/completions" ||
                    path == "/tokenize" || path == "/detokenize";
  const bool get = is_open(path) || path == "/v1/models" || path.rfind("/v1/models/", 0) == 0;
  if (!post && !get) throw ApiError(404, "There is nothing at " + path + ".");
  const bool allowed =
      post ? request.method == "POST" : request.method == "GET" || request.method == "HEAD";
  if (!allowed) {
    HttpResponse response =
        ApiError(405, path + " is not there for " + request.method + ".").response();
    response.headers.emplace_back("Allow", post ? "POST" : "GET, HEAD");
    return reply(exchange, std::move(response));
  }
  if (path == "/version") return reply_json(exchange, {{"version", version_text()}});
  if (path == "/") {
    return reply(exchange, {200, "text/html; charset=utf-8", status_page(), {}});
  }
  if (path == "/status") return reply_json(exchange, status());
  if (!live_) throw ApiError(503, "The model is still being loaded.");
  if (path == "/metrics") {
    return reply(exchange, {200,
                            "text/plain; version=0.0.4",
                            metrics_.text(live_->loop->stats(), live_->model.name),
                            {}});
  }
  if (path == "/v1/models") return reply_json(exchange, models());
  if (path.rfind("/v1/models/", 0) == 0) {
    check_model(path.substr(11), live_->model.name);
    return reply_json(exchange, models().at("data").as_array()[0].as_object());
  }
  if (draining_) throw ApiError(503, "The server is shutting down.");
  if (path == "/health") return reply(exchange, {200, "application/json", "{}", {}});
  if (sequences_ >= config_.max_sequences || accepted_ >= config_.max_sequences) {
    throw ApiError(429, "Too many requests are waiting; try again.");
  }
  if (path == "/tokenize") return tokenize(exchange);
  if (path == "/detokenize") return detokenize(exchange);
  complete(exchange, path == "/v1/chat/completions");
}

void ApiServer::authorize(const HttpRequest& request) const {
  if (config_.api_key.empty() || is_open(request.path)) return;
  if (!equal_secrets("Bearer " + config_.api_key, request.authorization)) {
    throw ApiError(401, "The API key is missing or wrong; send `Authorization: Bearer KEY`.");
  }
}

void ApiServer::reply(const Exchange& exchange, HttpResponse response) {
  ++metrics_.responses[response.status];
  exchange->reply(std::move(response));
}

void ApiServer::reply_json(const Exchange& exchange, const json::object& body) {
  reply(exchange, {200, "application/json", json::serialize(body), {}});
}

void ApiServer::fail(const Exchange& exchange, std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const ApiError& refusal) {
    reply(exchange, refusal.response());
  } catch (const ConfigError& wrong) {
    reply(exchange, ApiError(400, wrong.what()).response());
  } catch (const std::exception& fault) {
    log_error("a request failed: ", fault.what());
    reply(exchange, ApiError(500, "The server failed to answer; see its log.").response());
  }
}

void ApiServer::prepare(const Exchange& exchange, std::function<void()> work) {
  worker_.run([this, exchange, work = std::move(work)] {
    try {
      work();
    } catch (...) {
      server_.post([this, exchange, error = std::current_exception()] {
        fail(exchange, error);
        end_work(0);
      });
    }
  });
}

void ApiServer::complete(const Exchange& exchange, bool chat) {
  ++accepted_;
  prepare(exchange, [this, exchange, chat] {
    const ServedModel& model = live_->model;
    const json::object body = parse_body(exchange->request().body);
    CompletionRequest request = parse_completion_request(body, chat, model.defaults);
    check_model(request.model, model.name);
    std::vector<runtime::Request> requests;
    try {
      requests = model.token_requests(request);
    } catch (const ConfigError& wrong) {
      throw ApiError(400, wrong.what(), first_field(body, wrong.what()));
    }
    server_.post(
        [this, exchange, request = std::move(request), requests = std::move(requests)]() mutable {
          start_job(exchange, std::move(request), std::move(requests));
        });
  });
}

void ApiServer::start_job(const Exchange& exchange, CompletionRequest request,
                          std::vector<runtime::Request> requests) {
  const auto sequences =
      static_cast<std::int64_t>(requests.size()) * static_cast<std::int64_t>(request.params.n);
  sequences_ += sequences;
  try {
    if (sequences > config_.max_sequences) {
      throw ApiError(400, concat("The request asks for ", sequences, " answers; this server takes ",
                                 config_.max_sequences, " at most."));
    }
    if (sequences_ > config_.max_sequences) {
      throw ApiError(429, "Too many requests are waiting; try again.");
    }
    const auto job = std::make_shared<CompletionJob>(
        CompletionJob::Services{server_, *live_->loop, live_->pump, metrics_, live_->model},
        exchange, std::move(request), [this, sequences] { end_work(sequences); });
    job->start(std::move(requests));
  } catch (...) {
    fail(exchange, std::current_exception());
    end_work(sequences);
  }
}

void ApiServer::end_work(std::int64_t sequences) {
  sequences_ -= sequences;
  --accepted_;
  if (accepted_ == 0 && on_empty_) std::exchange(on_empty_, nullptr)();
}

void ApiServer::tokenize(const Exchange& exchange) {
  ++accepted_;
  prepare(exchange, [this, exchange] {
    const json::object body = parse_body(exchange->request().body);
    const JsonBody fields(body);
    const ServedModel& model = live_->model;
    check_model(fields.text("model").value_or(""), model.name);
    std::vector<std::int32_t> ids;
    if (fields.find("messages") != nullptr) {
      json::object variables{
          {"add_generation_prompt", fields.flag("add_generation_prompt").value_or(true)}};
      ids = model.chat_tokens(parse_messages(body), variables);
    } else {
      const auto prompt = fields.text("prompt");
      if (!prompt) throw ApiError(400, "`prompt` or `messages` is missing.", "prompt");
      ids = model.tokens(*prompt, fields.flag("add_special_tokens").value_or(true));
    }
    json::object answer{{"count", ids.size()}, {"max_model_len", model.max_model_len}};
    answer["tokens"] = json::array(ids.begin(), ids.end());
    server_.post([this, exchange, answer = std::move(answer)] {
      reply_json(exchange, answer);
      end_work(0);
    });
  });
}

void ApiServer::detokenize(const Exchange& exchange) {
  ++accepted_;
  prepare(exchange, [this, exchange] {
    const json::object body = parse_body(exchange->request().body);
    const JsonBody fields(body);
    check_model(fields.text("model").value_or(""), live_->model.name);
    const auto* list = fields.list("tokens");
    if (list == nullptr) throw ApiError(400, "`tokens` is missing.", "tokens");
    const std::string text =
        live_->model.text("tokens").decode(parse_token_ids(*list, "tokens"), false);
    server_.post([this, exchange, text] {
      reply_json(exchange, {{"prompt", text}});
      end_work(0);
    });
  });
}

json::object ApiServer::models() const {
  json::object model{{"id", live_->model.name},
                     {"object", "model"},
                     {"owned_by", "tandem"},
                     {"max_model_len", live_->model.max_model_len},
                     {"vocab_size", live_->model.vocab_size}};
  return {{"object", "list"}, {"data", json::array{std::move(model)}}};
}

json::object ApiServer::status() const {
  const auto age = std::chrono::steady_clock::now() - started_;
  json::object result{{"ready", live_ != nullptr},
                      {"draining", draining_},
                      {"version", version_text()},
                      {"uptime_s", std::chrono::duration<double>(age).count()}};
  if (!live_) return result;
  const runtime::LoopStats loop = live_->loop->stats();
  const runtime::SchedulerStats& s = loop.scheduler;
  result["model"] = live_->model.name;
  result["running"] = s.running;
  result["waiting"] = s.waiting;
  result["kv_used_chunks"] = s.used_chunks;
  result["kv_mapped_chunks"] = s.mapped_chunks;
  result["kv_max_chunks"] = s.max_chunks - 1;
  result["kv_cached_chunks"] = s.cached_chunks;
  result["preemptions"] = s.preemptions;
  result["prefix_queries_tokens"] = s.prefix_queries_tokens;
  result["prefix_hits_tokens"] = s.prefix_hits_tokens;
  result["steps"] = loop.steps;
  result["late_steps"] = loop.times.late_steps;
  result["step_host_us"] = json::object{{"p50", 1e6 * loop.times.host.quantile(0.5)},
                                        {"p99", 1e6 * loop.times.host.quantile(0.99)}};
  result["prefill_tokens"] = loop.prefill_tokens;
  result["generated_tokens"] = loop.generated_tokens;
  json::array ranks;
  const std::vector<std::string> states = live_->states();
  for (std::size_t r = 0; r < live_->ranks.size(); ++r) {
    const ServedRank& rank = live_->ranks[r];
    ranks.push_back({{"host", rank.host},
                     {"device", rank.device},
                     {"state", r < states.size() ? states[r] : "starting"}});
  }
  result["ranks"] = std::move(ranks);
  return result;
}

}  // namespace tandem::launch
