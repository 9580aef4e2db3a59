// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/serve_options.h"

#include <boost/json.hpp>
#include <cstdlib>
#include <limits>

#include "kernels/device/error.h"
#include "launch/command_line.h"

namespace tandem::launch {
namespace json = boost::json;
namespace po = boost::program_options;
namespace {

/// As they were typed.
struct Words {
  std::string extra_body;
  std::vector<std::string> rates, search, objectives;
  double tolerance = 0.05;
};

void take_rates(const Words& words, ServeOptions& options) {
  options.objectives = parse_objectives(words.objectives);
  for (const std::string& word : words.rates)
    options.rates.push_back(parse_rate("--request-rate", word));
  options.is_sweep = !words.rates.empty() || !words.search.empty();
  if (!words.search.empty()) {
    TANDEM_REQUIRE(words.rates.empty(), "--find-rate chooses the rates; leave out --request-rate");
    TANDEM_REQUIRE(options.objectives.any(),
                   "--find-rate needs objectives; add for example --goodput ttft:5000 tpot:50");
    options.search.emplace(words.search, words.tolerance);
  } else if (options.rates.empty()) {
    options.rates.push_back(options.workload.trace.empty() ? std::numeric_limits<double>::infinity()
                                                           : ServeOptions::kOwnTimes);
  }
  TANDEM_REQUIRE(options.time_budget_s >= 0,
                 "--time-budget must not be negative: ", options.time_budget_s);
}

void check(const Words& words, ServeOptions& options) {
  options.workload.validate();
  take_rates(words, options);
  TANDEM_REQUIRE(
      options.prefix_history >= 0 && options.prefix_history <= options.workload.skip_prompts,
      "--prefix-history ", options.prefix_history,
      " is taken from the requests passed over; add --skip-prompts with at least as many");
  TANDEM_REQUIRE(options.burstiness > 0, "--burstiness must be above 0, not ", options.burstiness);
  TANDEM_REQUIRE(options.time_scale > 0, "--time-scale must be above 0, not ", options.time_scale);
  TANDEM_REQUIRE(options.timeout_s > 0, "--timeout must be above 0, not ", options.timeout_s);
  TANDEM_REQUIRE(options.max_concurrency >= 0 && options.warmups >= 0,
                 "--max-concurrency and --num-warmups must not be negative");
  TANDEM_REQUIRE(options.endpoint.rfind('/', 0) == 0, "--endpoint ", options.endpoint,
                 " must begin with /, for example /v1/completions");
  if (!words.extra_body.empty()) {
    boost::system::error_code wrong;
    const json::value value = json::parse(words.extra_body, wrong);
    TANDEM_REQUIRE(!wrong && value.is_object(), "--extra-body ", words.extra_body,
                   " is no JSON object; write for example '{\"top_k\": 40}'");
    options.extra = value.get_object();
  }
  for (const char* variable : {"TANDEM_API_KEY", "OPENAI_API_KEY"})
    if (const char* key = std::getenv(variable); key != nullptr && options.api_key.empty())
      options.api_key = key;
}

}  // namespace

std::optional<ServeOptions> parse_serve_options(bool print,
                                                const std::vector<std::string>& arguments) {
  ServeOptions options;
  Words words;
  po::options_description description(
      "usage: tandem bench serve [--base-url http://HOST:PORT] [options]\n\nLoads a running "
      "OpenAI-compatible server. Every request is sent at its time whatever the server does; what "
      "--max-concurrency or a slow client holds back is shown as \"client queue\"");
  // clang-format off
  description.add_options()
      ("base-url", po::value(&options.base_url)->default_value(options.base_url), "the server")
      ("endpoint", po::value(&options.endpoint)->default_value(options.endpoint), "or /v1/chat/completions, which gets words instead of token ids")
      ("model,m", po::value(&options.model), "model name in requests; default: the server's first")
      ("api-key", po::value(&options.api_key), "also: environment variable TANDEM_API_KEY or OPENAI_API_KEY")
      ("request-rate", po::value(&words.rates)->multitoken(), "requests per second, or inf (the default); several are run one after the other; a trace is played at this mean rate")
      ("find-rate", po::value(&words.search)->multitoken(), "LOW HIGH [FIRST]: bisect for the highest rate that holds the objectives; implies --stop-at-miss")
      ("rate-tolerance", po::value(&words.tolerance)->default_value(0.05, "0.05"), "how near two rates come in that search, as a share")
      ("time-budget", po::value(&options.time_budget_s)->default_value(0, "no limit"), "seconds: no rate begins that would not end within them")
      ("burstiness", po::value(&options.burstiness)->default_value(1, "1"), "shape of the Gamma distribution of gaps; 1 is a Poisson process, less comes in bursts")
      ("time-scale", po::value(&options.time_scale)->default_value(1, "1"), "a trace's seconds per second, when no rate is given")
      ("max-concurrency", po::value(&options.max_concurrency)->default_value(0, "no limit"), "requests under way at most")
      ("goodput", po::value(&words.objectives)->multitoken(), "objectives in ms: ttft:5000 tpot:50 e2el:60000; they also set the deadlines of the fluidity index")
      ("stop-at-miss", po::bool_switch(&options.stop_at_miss), "end a rate once its p99 cannot hold an objective any more, and leave out those after it")
      ("prefix-history", po::value(&options.prefix_history)->default_value(0, "0"), "so many of the requests passed over by --skip-prompts go first, before each rate and for one token each: the prefix cache is then as it is in the middle of a trace")
      ("num-warmups", po::value(&options.warmups)->default_value(options.warmups), "requests before the clock starts")
      ("ignore-eos", po::bool_switch(&options.ignore_eos), "answers of full length; so it is anyway where the data set gives lengths")
      ("no-ignore-eos", po::bool_switch(&options.no_ignore_eos), "never ask for that (some servers refuse the field)")
      ("temperature", po::value(&options.temperature)->default_value(0, "0"), "of sampling")
      ("extra-body", po::value(&words.extra_body), "JSON object of more fields for each request")
      ("vocab-size", po::value(&options.vocab_size)->default_value(0, "the server's, or 10000"), "prompt token ids are below it")
      ("timeout", po::value(&options.timeout_s)->default_value(3600, "3600"), "seconds for one request")
      ("num-gpus", po::value(&options.gpus)->default_value(0, "the server's ranks, or 1"), "divides tokens/s per GPU")
      ("ceiling-model", po::value(&options.ceiling_model), "model folder, to show the share of what the hardware allows")
      ("ceiling-gpu", po::value(&options.ceiling_gpu), "GPU for that; default: the one a Tandem server names")
      ("name", po::value(&options.name), "the model's name in the results; default: as served")
      ("json", po::value(&options.json), "write the results to this file; - is standard output")
      ("help,h", "this text");
  // clang-format on
  options.workload.add_to(description);
  if (!parse_or_help(print, "bench serve", arguments, description)) return std::nullopt;
  check(words, options);
  return options;
}

}  // namespace tandem::launch
