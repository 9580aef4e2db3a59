// SPDX-License-Identifier: Apache-2.0
// An open-loop HTTP client of OpenAI-compatible servers (Boost.Beast coroutines on the calling
// thread): sends each request at its time, whatever the server does, unless `max_concurrency`
// makes it wait; that waiting is recorded, not hidden. Connections are kept and used again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tandem::launch {

struct ServerAddress {
  std::string host, port, prefix;  ///< `prefix` is what stands before "/v1/..." in a path.
  std::string api_key;
};

/// "http://host:port/prefix"; ConfigError for https, which this client does not speak.
ServerAddress parse_base_url(const std::string& url);

struct HttpAnswer {
  int status = 0;
  std::string body;
};
/// ConfigError when the server cannot be reached.
HttpAnswer http_get(const ServerAddress& server, const std::string& path);

/// Some tokens that came together.
struct AnswerPiece {
  double at_s = 0;
  std::int64_t tokens = 1;
};

/// Times in seconds after the start of the run.
struct RequestRecord {
  double scheduled_s = 0, sent_s = 0, end_s = 0;
  std::vector<AnswerPiece> pieces;
  std::int64_t prompt_tokens = 0, output_tokens = 0;
  std::string error;       ///< "": a complete answer came.
  bool abandoned = false;  ///< The run was ended before the answer was, or before it was sent.

  bool ok() const { return !abandoned && error.empty() && !pieces.empty(); }
};

struct LoadState {
  double seconds = 0;
  std::int64_t total = 0;
  std::int64_t due = 0, sent = 0, done = 0, failed = 0;  ///< due - sent wait in the client.
};

struct LoadPlan {
  std::string path;                              ///< "/v1/completions"
  std::vector<double> times_s;                   ///< In order.
  std::int64_t max_concurrency = 0;              ///< 0: no limit
  double timeout_s = 3600;                       ///< Of one request.
  std::function<std::string(std::size_t)> body;  ///< JSON of request i.
  std::function<void(const LoadState&)> progress;
  /// Asked ten times a second, with all records and the time: true ends the run at once, and
  /// closes the connections of what is under way.
  std::function<bool(const std::vector<RequestRecord>&, double)> enough;
};

std::vector<RequestRecord> run_load(const ServerAddress& server, const LoadPlan& plan);

}  // namespace tandem::launch
