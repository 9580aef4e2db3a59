// SPDX-License-Identifier: Apache-2.0
#include "launch/waits_command.h"

#include <cstdio>
#include <optional>

#include "launch/command_line.h"
#include "launch/model_source.h"
#include "launch/prompts.h"
#include "launch/waits/session.h"
#include "launch/waits/table.h"

namespace tandem::launch {
namespace {

namespace po = boost::program_options;

constexpr std::int32_t kWarmupTokens = 8;

struct Options {
  EngineOptions engine;
  PromptOptions prompts;
  WaitsOptions waits;
  std::int32_t batch_size = 1, input_len = 128, output_len = 64;
};

bool parse(Ranks& ranks, const std::vector<std::string>& arguments, Options& options) {
  po::options_description description(
      "usage: tandem waits --model MODEL [options]\n"
      "       tandem waits compare BEFORE.json AFTER.json");
  // clang-format off
  description.add_options()
      ("batch-size", po::value(&options.batch_size)->default_value(options.batch_size), "sequences that run together")
      ("input-len", po::value(&options.input_len)->default_value(options.input_len), "prompt tokens of each, made up")
      ("output-len", po::value(&options.output_len)->default_value(options.output_len), "tokens that each generates")
      ("prompt,p", po::value(&options.prompts.prompts), "this text instead of a made-up prompt")
      ("prompt-file", po::value(&options.prompts.files), "file with one prompt; - is standard input")
      ("chat", po::bool_switch(&options.prompts.chat), "put the prompt into the model's chat template")
      ("help,h", "this text");
  // clang-format on
  options.waits.table = true;
  options.waits.add_to(description);
  options.engine.add_to(description);
  if (!parse_or_help(ranks.first(), "waits", arguments, description)) return false;
  for (const std::int32_t value : {options.batch_size, options.input_len, options.output_len})
    TANDEM_REQUIRE(value > 0, "a batch size or length must be at least 1, not ", value);
  options.engine.max_num_seqs = std::max(options.engine.max_num_seqs, options.batch_size);
  options.engine.validate(ranks.control.size(), "waits");
  return true;
}

/// Token ids without a meaning, different for every `seed`.
std::vector<std::int32_t> made_up_prompt(std::int64_t vocab_size, std::int32_t length,
                                         std::uint64_t seed) {
  std::vector<std::int32_t> ids;
  std::uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (std::int32_t i = 0; i < length; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    ids.push_back(
        static_cast<std::int32_t>((state >> 33) % static_cast<std::uint64_t>(vocab_size)));
  }
  return ids;
}

/// The prompts of the run: the user's, or made-up ones.
std::vector<std::vector<std::int32_t>> make_prompts(const Options& options,
                                                    const ModelSource& source) {
  std::vector<std::vector<std::int32_t>> prompts;
  if (options.prompts.prompts.empty() && options.prompts.files.empty()) {
    for (std::int32_t i = 0; i < options.batch_size; ++i)
      prompts.push_back(made_up_prompt(source.config.vocab_size, options.input_len,
                                       static_cast<std::uint64_t>(i) + 1));
    return prompts;
  }
  const ModelText text = open_text(source.path);
  for (const std::string& prompt : read_prompts(options.prompts))
    for (std::int32_t i = 0; i < options.batch_size; ++i)
      prompts.push_back(tokenize_prompt(text, options.prompts, prompt));
  return prompts;
}

void run_prompts(runtime::EngineLoop& loop, const std::vector<std::vector<std::int32_t>>& prompts,
                 std::int32_t output_len) {
  for (const auto& prompt : prompts) {
    runtime::Request request;
    request.prompt = prompt;
    request.params.max_tokens = output_len;
    request.params.ignore_eos = true;
    loop.submit(std::move(request), [](const runtime::TokenEvent&) {});
  }
  loop.run_until_idle();
}

int compare(Ranks& ranks, const std::vector<std::string>& files) {
  TANDEM_REQUIRE(files.size() == 2,
                 "tandem waits compare needs two reports: tandem waits compare BEFORE.json "
                 "AFTER.json");
  const std::string text = compare_waits(read_report(files[0]), read_report(files[1]));
  if (ranks.first()) std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

int run_waits(Ranks& ranks, const std::vector<std::string>& arguments) {
  if (!arguments.empty() && arguments[0] == "compare")
    return compare(ranks, {arguments.begin() + 1, arguments.end()});
  Options options;
  if (!parse(ranks, arguments, options)) return 0;
  const ModelSource source = open_model(ranks, options.engine);
  const std::string device = choose_device(ranks, options.engine.device);
  runtime::EngineConfig config = engine_config(ranks, options.engine, source.config, device);
  std::vector<std::vector<std::int32_t>> prompts;
  ranks.control.together([&] {
    if (ranks.first()) prompts = make_prompts(options, source);
    for (const auto& prompt : prompts)
      TANDEM_REQUIRE(
          static_cast<std::int32_t>(prompt.size()) + options.output_len <= config.max_model_len,
          "a prompt of ", prompt.size(), " tokens and ", options.output_len,
          " more do not fit into ", config.max_model_len, "; raise --max-model-len");
  });
  WaitsSession session(ranks, options.waits);
  config.recorder = session.recorder();
  const MadeEngine made =
      make_engine(ranks, device, options.engine, source.config, source.checkpoint, config);
  session.calibrate(made, device, config.threads);
  runtime::EngineLoop loop(ranks.control, *made.engine, {made.engine->limits(), false, {}});
  loop.record_to(session.recorder());
  WaitsFacts facts{source.config.name, command_text(ranks, "waits", arguments), 0};
  if (ranks.first()) {
    // Once before, so that buffers, primitives and graphs exist.
    run_prompts(loop, prompts, std::min(options.output_len, kWarmupTokens));
    facts.first_step = session.recorder()->step() + 1;
    run_prompts(loop, prompts, options.output_len);
    loop.close();
  } else {
    loop.follow();
  }
  session.finish(made, facts);
  return 0;
}

}  // namespace tandem::launch
