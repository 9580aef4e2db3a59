// SPDX-License-Identifier: Apache-2.0
#include "launch/generate_command.h"

#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <optional>

#include "kernels/device/log.h"
#include "launch/command_line.h"
#include "launch/engine_factory.h"
#include "launch/logprobs_json.h"
#include "launch/model_source.h"
#include "launch/output_text.h"
#include "launch/prompts.h"
#include "launch/sampling_options.h"
#include "launch/waits/session.h"
#include "runtime/engine_loop.h"

namespace tandem::launch {
namespace {

namespace json = boost::json;
namespace po = boost::program_options;
using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

struct Options {
  EngineOptions engine;
  PromptOptions prompts;
  SamplingOptions sampling{256};
  WaitsOptions waits;
  bool json = false;
  std::int32_t logprobs = 0, prompt_logprobs = 0;
};

/// Shows the answers in order: the first unfinished one streams, later ones wait for their turn.
class Printer {
 public:
  Printer(std::vector<OutputText>& outputs, bool quiet)
      : outputs_(outputs), shown_(outputs.size()), quiet_(quiet) {}

  void update() {
    while (!quiet_ && current_ < outputs_.size()) {
      const OutputText& output = outputs_[current_];
      std::fwrite(output.text().data() + shown_[current_], 1,
                  output.text().size() - shown_[current_], stdout);
      shown_[current_] = output.text().size();
      if (!output.finished()) break;
      std::fputs("\n", stdout);
      if (++current_ < outputs_.size()) std::fputs("\n", stdout);
    }
    std::fflush(stdout);
  }

 private:
  std::vector<OutputText>& outputs_;
  std::vector<std::size_t> shown_;
  bool quiet_;
  std::size_t current_ = 0;
};

struct Timing {
  double load_s = 0;
  Clock::time_point start, first_token, end;
  std::int64_t tokens = 0;

  double ttft_ms() const { return 1e3 * seconds_between(start, first_token); }
  /// Time per output token after the first, over all sequences.
  double tpot_ms(std::int64_t sequences) const {
    const std::int64_t later = tokens - sequences;
    return later > 0 ? 1e3 * seconds_between(first_token, end) * sequences / later : 0.0;
  }
  double tokens_per_s() const {
    const double elapsed = seconds_between(start, end);
    return elapsed > 0 ? tokens / elapsed : 0.0;
  }
};

/// Rank 0's part: requests in, text out.
class Generation {
 public:
  Generation(runtime::EngineLoop& loop, const ModelText& text, const Options& options,
             const runtime::SamplingParams& params)
      : loop_(loop), text_(text), options_(options), params_(params) {}

  void run(const std::vector<std::vector<std::int32_t>>& prompts) {
    for (std::size_t i = 0; i < prompts.size() * params_.n; ++i)
      outputs_.emplace_back(&text_.tokenizer, params_);
    logprobs_.resize(outputs_.size());
    prompt_logprobs_.resize(prompts.size());
    Printer printer(outputs_, options_.json);
    timing.start = Clock::now();
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      prompt_tokens_ += static_cast<std::int64_t>(prompts[i].size());
      runtime::Request request;
      request.prompt = prompts[i];
      request.params = params_;
      loop_.submit(std::move(request), [this, i, &printer](const runtime::TokenEvent& event) {
        accept(i, event);
        printer.update();
      });
    }
    loop_.run_until_idle();
    timing.end = Clock::now();
  }

  json::object report(const std::string& model, const MadeEngine& made) const {
    json::array outputs;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      json::object item{{"text", outputs_[i].text()},
                        {"token_ids", json::value_from(outputs_[i].token_ids())},
                        {"finish_reason", runtime::name(outputs_[i].finish_reason())}};
      if (params_.logprobs) item["logprobs"] = logprobs_[i];
      if (params_.prompt_logprobs && i % params_.n == 0)
        item["prompt_logprobs"] = prompt_logprobs_[i / params_.n];
      outputs.push_back(std::move(item));
    }
    return {{"model", model},
            {"ranks", made.bytes_read.size()},
            {"device", made.device_name},
            {"bytes_read", json::value_from(made.bytes_read)},
            {"prompt_tokens", prompt_tokens_},
            {"outputs", outputs},
            {"timing",
             {{"load_s", timing.load_s},
              {"ttft_ms", timing.ttft_ms()},
              {"tpot_ms", timing.tpot_ms(static_cast<std::int64_t>(outputs_.size()))},
              {"tokens_per_s", timing.tokens_per_s()}}}};
  }

  void print_numbers(int ranks, const std::string& device) const {
    std::fprintf(
        stderr,
        "\n[load %.2f s | first token %.0f ms | %.1f tokens/s | %lld tokens | %d rank%s | %s]\n",
        timing.load_s, timing.ttft_ms(), timing.tokens_per_s(),
        static_cast<long long>(timing.tokens), ranks, ranks == 1 ? "" : "s", device.c_str());
  }

  Timing timing;

 private:
  void accept(std::size_t prompt, const runtime::TokenEvent& event) {
    if (event.token >= 0 && timing.tokens++ == 0) timing.first_token = Clock::now();
    const std::size_t number = prompt * params_.n + event.sample;
    OutputText& output = outputs_[number];
    if (!output.finished() && !event.logprobs.empty())
      logprobs_[number].push_back(logprobs_json(text_.tokenizer, event.logprobs));
    if (event.token >= 0 && event.sample == 0 && output.token_ids().empty())
      prompt_logprobs_[prompt].push_back(nullptr);  // nothing comes before the first token
    for (const auto& logprobs : event.prompt_logprobs)
      prompt_logprobs_[prompt].push_back(logprobs_json(text_.tokenizer, logprobs));
    output.push(event);
    if (output.stopped_by_string() && event.finish == runtime::FinishReason::kNone)
      loop_.cancel(event.request, event.sample);
  }

  runtime::EngineLoop& loop_;
  const ModelText& text_;
  const Options& options_;
  runtime::SamplingParams params_;
  std::vector<OutputText> outputs_;
  std::vector<json::array> logprobs_, prompt_logprobs_;  ///< By answer, and by prompt.
  std::int64_t prompt_tokens_ = 0;
};

/// Parses; nothing when `--help` was printed.
std::optional<po::variables_map> parse(Ranks& ranks, const std::vector<std::string>& arguments,
                                       Options& options) {
  po::options_description description(
      "usage: tandem generate --model MODEL --prompt TEXT [options]");
  description.add_options()("prompt,p", po::value(&options.prompts.prompts),
                            "a prompt; may be given several times")(
      "prompt-file", po::value(&options.prompts.files),
      "file with one prompt; - is standard input")(
      "chat", po::bool_switch(&options.prompts.chat),
      "put each prompt into the model's chat template")(
      "system", po::value(&options.prompts.system), "with --chat: the system message")(
      "tools", po::value(&options.prompts.tools), "with --chat: JSON file with a list of tools")(
      "json", po::bool_switch(&options.json), "one JSON object on standard output instead of text")(
      "logprobs", po::value(&options.logprobs),
      "with --json: log-probabilities of each token and of this many of the likeliest")(
      "prompt-logprobs", po::value(&options.prompt_logprobs),
      "with --json: the same of the prompt's tokens, in its first answer's object")("help,h",
                                                                                    "this text");
  options.engine.add_to(description);
  options.sampling.add_to(description);
  options.waits.add_to(description);
  return parse_or_help(ranks.first(), "generate", arguments, description);
}

}  // namespace

int run_generate(Ranks& ranks, const std::vector<std::string>& arguments) {
  Options options;
  const auto values = parse(ranks, arguments, options);
  if (!values) return 0;
  options.engine.validate(ranks.control.size(), "generate");
  const ModelSource source = open_model(ranks, options.engine);
  runtime::SamplingParams params = options.sampling.params(*values, source.config);
  if (values->count("logprobs") > 0) params.logprobs = options.logprobs;
  if (values->count("prompt-logprobs") > 0) params.prompt_logprobs = options.prompt_logprobs;
  TANDEM_REQUIRE(options.json || (!params.logprobs && !params.prompt_logprobs),
                 "--logprobs and --prompt-logprobs are part of the JSON answer; add --json");
  params.validate(static_cast<std::int32_t>(source.config.vocab_size));
  const std::string device = choose_device(ranks, options.engine.device);
  runtime::EngineConfig config = engine_config(ranks, options.engine, source.config, device);

  // Text first: a wrong prompt is said before anything is loaded.
  std::optional<ModelText> text;
  std::vector<std::vector<std::int32_t>> prompts;
  ranks.control.on_first([&] {
    const std::vector<std::string> texts = read_prompts(options.prompts);
    text.emplace(open_text(source.path));
    options.sampling.ban_words(text->tokenizer, params);
    for (const std::string& prompt : texts) {
      prompts.push_back(tokenize_prompt(*text, options.prompts, prompt));
      const auto tokens = static_cast<std::int32_t>(prompts.back().size());
      TANDEM_REQUIRE(tokens < config.max_model_len, "the prompt has ", tokens,
                     " tokens, but a sequence may have ", config.max_model_len,
                     " with its answer; shorten it or raise --max-model-len");
    }
  });

  WaitsSession session(ranks, options.waits);
  config.recorder = session.recorder();
  const auto load_start = Clock::now();
  const MadeEngine made =
      make_engine(ranks, device, options.engine, source.config, source.checkpoint, config);
  session.calibrate(made, device, config.threads);
  runtime::EngineLoop loop(ranks.control, *made.engine,
                           {made.engine->limits(), true, source.config.eos_ids});
  loop.record_to(session.recorder());
  const WaitsFacts facts{source.config.name, command_text(ranks, "generate", arguments), 0};
  if (!ranks.first()) {
    loop.follow();
    session.finish(made, facts);
    return 0;
  }
  Generation generation(loop, *text, options, params);
  generation.timing.load_s = seconds_between(load_start, Clock::now());
  generation.run(prompts);
  loop.close();
  if (options.json)
    std::printf("%s\n", json::serialize(generation.report(source.config.name, made)).c_str());
  else
    generation.print_numbers(ranks.control.size(), made.device_name);
  session.finish(made, facts);
  return 0;
}

}  // namespace tandem::launch
