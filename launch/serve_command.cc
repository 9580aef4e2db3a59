// SPDX-License-Identifier: Apache-2.0
#include "launch/serve_command.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "kernels/device/error.h"
#include "kernels/device/log.h"
#include "launch/command_line.h"
#include "launch/engine_factory.h"
#include "launch/engine_options.h"
#include "launch/model_source.h"
#include "launch/server/api_server.h"
#include "launch/waits/session.h"
#include "runtime/engine_loop.h"
#include "runtime/text_file.h"

namespace tandem::launch {
namespace {

namespace po = boost::program_options;

struct Options {
  EngineOptions engine;
  WaitsOptions waits;
  ApiConfig api;
  std::string served_model_name, chat_template, max_request_bytes = "16MiB";
  int port = 8000;
  bool no_prefix_caching = false, skip_tokenizer = false;
};

/// An unset variable in --api-key "$KEY" must not open the server to all.
void require_key(const std::string& key) {
  TANDEM_REQUIRE(!key.empty(), "--api-key is empty; leave it out for a server without a key");
}

/// False when `--help` was printed.
bool parse(Ranks& ranks, const std::vector<std::string>& arguments, Options& options) {
  po::options_description description("usage: tandem serve --model MODEL [options]");
  // clang-format off
  description.add_options()
      ("host", po::value(&options.api.host)->default_value(options.api.host), "address to listen on; 0.0.0.0 lets other machines in")
      ("port", po::value(&options.port)->default_value(options.port), "port to listen on; 0 takes a free one")
      ("api-key", po::value(&options.api.api_key)->notifier(require_key), "key that requests must bring (also: environment variable TANDEM_API_KEY)")
      ("served-model-name", po::value(&options.served_model_name), "name of the model in requests and answers; default: the folder's or file's")
      ("chat-template", po::value(&options.chat_template), "file with a chat template instead of the model's own")
      ("skip-tokenizer-init", po::bool_switch(&options.skip_tokenizer), "serve without a tokenizer: prompts and answers are token ids")
      ("no-enable-prefix-caching", po::bool_switch(&options.no_prefix_caching), "do not reuse the cache of equal prompt beginnings")
      ("max-waiting", po::value(&options.api.max_sequences)->default_value(options.api.max_sequences), "answers that may run or wait; more requests get status 429")
      ("max-request-bytes", po::value(&options.max_request_bytes)->default_value(options.max_request_bytes), "largest request body")
      ("help,h", "this text");
  // clang-format on
  options.engine.max_num_seqs = 256;
  options.waits.add_to(description);
  options.engine.add_to(description);
  if (!parse_or_help(ranks.first(), "serve", arguments, description)) return false;
  options.engine.validate(ranks.control.size(), "serve");
  TANDEM_REQUIRE(options.port >= 0 && options.port <= 65535, "--port ", options.port,
                 " is not a port; use 1 to 65535, or 0 for a free one");
  TANDEM_REQUIRE(options.api.max_sequences >= 1, "--max-waiting must be at least 1, not ",
                 options.api.max_sequences);
  options.api.port = static_cast<std::uint16_t>(options.port);
  options.api.http.max_body_bytes =
      static_cast<std::size_t>(parse_bytes("--max-request-bytes", options.max_request_bytes));
  TANDEM_REQUIRE(options.api.http.max_body_bytes > 0,
                 "--max-request-bytes must be at least 1, not ", options.max_request_bytes);
  if (const char* key = std::getenv("TANDEM_API_KEY");
      key != nullptr && options.api.api_key.empty()) {
    options.api.api_key = key;
  }
  return true;
}

std::string read_file(const std::string& path) {
  auto text = runtime::read_text_file(path);
  TANDEM_REQUIRE(text, "cannot read --chat-template ", path, "; name a readable file");
  return *std::move(text);
}

/// The name that requests use: a hub name as given, else the folder's or file's.
std::string served_name(const Options& options) {
  if (!options.served_model_name.empty()) return options.served_model_name;
  const std::filesystem::path path(options.engine.model);
  if (!std::filesystem::exists(path)) return options.engine.model;
  const std::filesystem::path clean = std::filesystem::canonical(path);
  return std::filesystem::is_directory(clean) ? clean.filename() : clean.stem();
}

/// A folder with nothing but a config is enough for weights made up from a seed.
bool has_tokenizer(const Options& options, const ModelSource& source) {
  if (options.skip_tokenizer) return false;
  return options.engine.load_format != "dummy" || !std::filesystem::is_directory(source.path) ||
         std::filesystem::exists(source.path / "tokenizer.json");
}

ServedModel served_model(const Options& options, const ModelSource& source,
                         const runtime::EngineLimits& limits) {
  ServedModel model;
  model.name = served_name(options);
  model.defaults = default_sampling(source.config);
  model.max_model_len = limits.max_model_len;
  model.vocab_size = static_cast<std::int32_t>(source.config.vocab_size);
  if (!has_tokenizer(options, source)) {
    log_info("no tokenizer: /v1/completions takes token ids as prompt and answers with token ids");
    return model;
  }
  ModelText text = open_text(source.path);
  model.tokenizer.emplace(std::move(text.tokenizer));
  model.bos_token = std::move(text.bos_token);
  model.eos_token = std::move(text.eos_token);
  std::optional<runtime::TemplateTexts> chat = std::move(text.templates);
  if (!options.chat_template.empty()) chat = {read_file(options.chat_template), std::nullopt};
  if (chat) model.chat_template.emplace(*chat);
  return model;
}

std::vector<ServedRank> served_ranks(Ranks& ranks, const std::string& device) {
  const auto hosts = ranks.control.all_gather(ranks.session.host());
  const auto devices = ranks.control.all_gather(device);
  std::vector<ServedRank> served;
  for (std::size_t r = 0; r < hosts.size(); ++r) served.push_back({hosts[r], devices[r]});
  return served;
}

std::string describe(const comm::RankState& rank) {
  if (rank.left) return "left";
  if (rank.connection_lost) return "connection lost";
  if (rank.silent_s > 1) return concat("silent for ", static_cast<int>(rank.silent_s), " s");
  if (rank.kind == comm::StageKind::kIdle) return "idle";
  if (rank.stage_age_s > 1)
    return concat(rank.stage, " for ", static_cast<int>(rank.stage_age_s), " s");
  return "running";
}

/// Rank 0 from "ready" to the last byte. The first SIGTERM or SIGINT drains, the second stops.
void serve(ApiServer& server, runtime::EngineLoop& loop, const std::string& host) {
  server.on_signal([&](int count) {
    if (count > 1) return loop.stop();
    log_info("shutting down: finishing what runs; a second signal stops at once");
    server.drain([&] { loop.stop(); });
  });
  log_info("listening on http://", host, ":", server.port(), " (status page at /); SIGTERM to ",
           "process ", ::getpid(), " finishes what runs and ends the job");
  loop.run();
  server.flush();
}

}  // namespace

int run_serve(Ranks& ranks, const std::vector<std::string>& arguments) {
  Options options;
  options.engine.mixed_step_tokens = kServedMixedTokens;
  if (!parse(ranks, arguments, options)) return 0;
  const ModelSource source = open_model(ranks, options.engine);
  const std::string device = choose_device(ranks, options.engine.device);
  runtime::EngineConfig config = engine_config(ranks, options.engine, source.config, device);

  // Listening comes first: a port in use is found before a model is loaded for minutes.
  std::unique_ptr<ApiServer> server;
  ranks.control.on_first([&] { server = std::make_unique<ApiServer>(options.api); });
  WaitsSession session(ranks, options.waits);
  config.recorder = session.recorder();
  const MadeEngine made =
      make_engine(ranks, device, options.engine, source.config, source.checkpoint, config);
  session.calibrate(made, device, config.threads);
  std::optional<ServedModel> model;
  ranks.control.on_first(
      [&] { model.emplace(served_model(options, source, made.engine->limits())); });
  std::vector<ServedRank> served = served_ranks(ranks, made.device_name);
  runtime::EngineLoop loop(
      ranks.control, *made.engine,
      {made.engine->limits(), !options.no_prefix_caching, source.config.eos_ids});
  loop.record_to(session.recorder());
  const WaitsFacts facts{source.config.name, command_text(ranks, "serve", arguments), 0};
  if (!ranks.first()) {
    // A launcher signals every rank; rank 0 decides when the others go home.
    std::signal(SIGTERM, SIG_IGN);
    std::signal(SIGINT, SIG_IGN);
    loop.follow();
    session.finish(made, facts);
    return 0;
  }
  server->ready(std::move(*model), loop, std::move(served), [&] {
    std::vector<std::string> states;
    for (const comm::RankState& rank : ranks.watchdog.ranks()) states.push_back(describe(rank));
    return states;
  });
  serve(*server, loop, options.api.host);
  server.reset();
  session.finish(made, facts);
  return 0;
}

}  // namespace tandem::launch
