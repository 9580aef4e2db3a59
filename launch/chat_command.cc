// SPDX-License-Identifier: Apache-2.0
#include "launch/chat_command.h"

#include <cstdio>
#include <optional>

#include "kernels/device/log.h"
#include "launch/chat_terminal.h"
#include "launch/command_line.h"
#include "launch/conversation.h"
#include "launch/engine_factory.h"
#include "launch/model_source.h"
#include "launch/output_text.h"
#include "launch/sampling_options.h"
#include "runtime/engine_loop.h"

namespace tandem::launch {
namespace {

namespace po = boost::program_options;

constexpr const char* kHelp =
    "  /clear  begin a new conversation\n"
    "  /exit   leave (or Ctrl-D)\n"
    "  Ctrl-C  stop the answer, or drop what was typed\n"
    "  A line that ends in \\ goes on; \"\"\" begins and ends a text of several lines.\n";

struct Options {
  EngineOptions engine;
  SamplingOptions sampling{1024};
  std::string system;
};

void show(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// Rank 0's part: lines in, answers out.
class Chat {
 public:
  Chat(runtime::EngineLoop& loop, const ModelText& text, const Options& options,
       const runtime::SamplingParams& params, std::int32_t max_model_len)
      : loop_(loop),
        text_(text),
        params_(params),
        max_model_len_(max_model_len),
        verbose_(options.engine.verbose),
        conversation_(text, options.system) {}

  void run() {
    ChatTerminal terminal;
    if (terminal.interactive()) show("Type a message, or /help.\n");
    MessageReader reader;
    while (true) {
      if (terminal.interactive()) show(reader.pending() ? "... " : "> ");
      ChatInput input = terminal.read();
      if (input.kind == ChatInput::Kind::kEnd) break;
      if (input.kind == ChatInput::Kind::kInterrupt) {
        reader.reset();
        show("\n");
        continue;
      }
      const std::optional<std::string> message = reader.push(std::move(input.line));
      if (message && !handle(terminal, *message)) return;
    }
    if (terminal.interactive()) show("\n");
  }

 private:
  /// False: the person leaves.
  bool handle(ChatTerminal& terminal, const std::string& message) {
    if (message == "/exit" || message == "/quit") return false;
    if (message == "/help") {
      show(kHelp);
    } else if (message == "/clear") {
      conversation_.clear();
      show("A new conversation.\n");
    } else if (message.find_first_not_of(" \t\n") != std::string::npos) {
      try {
        answer(terminal, message);
      } catch (const ConfigError& error) {  // this message cannot be answered; the chat goes on
        log_warn(error.what());
        conversation_.drop_last();
      }
    }
    return true;
  }

  /// The prompt, without the oldest messages if they no longer fit.
  std::vector<std::int32_t> fitting_prompt() {
    int forgotten = 0;
    std::vector<std::int32_t> prompt = conversation_.prompt();
    while (static_cast<std::int32_t>(prompt.size()) >= max_model_len_ &&
           conversation_.forget_oldest()) {
      forgotten += 2;
      prompt = conversation_.prompt();
    }
    if (forgotten > 0)
      log_warn("the conversation no longer fits ", max_model_len_, " tokens: its oldest ",
               forgotten, " messages were forgotten");
    return prompt;
  }

  void answer(ChatTerminal& terminal, const std::string& message) {
    conversation_.add("user", message);
    runtime::Request request;
    request.prompt = fitting_prompt();
    request.params = params_;
    const auto prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
    const std::int64_t computed = loop_.stats().prefill_tokens;
    OutputText output(&text_.tokenizer, params_);
    const auto id = loop_.submit(std::move(request), [&](const runtime::TokenEvent& event) {
      show(output.push(event));
      if (output.stopped_by_string() && event.finish == runtime::FinishReason::kNone)
        loop_.cancel(event.request);
    });
    terminal.on_interrupt([this, id] { loop_.cancel(id); });
    loop_.run_until_idle();
    terminal.on_interrupt({});
    show("\n");
    conversation_.add("assistant", output.text());
    if (verbose_)
      log_info(prompt_tokens, " prompt tokens, ", loop_.stats().prefill_tokens - computed,
               " of them computed; the others were in the KV cache");
  }

  runtime::EngineLoop& loop_;
  const ModelText& text_;
  runtime::SamplingParams params_;
  std::int32_t max_model_len_;
  bool verbose_;
  Conversation conversation_;
};

/// Parses; nothing when `--help` was printed.
std::optional<po::variables_map> parse(Ranks& ranks, const std::vector<std::string>& arguments,
                                       Options& options) {
  po::options_description description("usage: tandem chat --model MODEL [options]");
  description.add_options()("system", po::value(&options.system), "the system message")(
      "help,h", "this text");
  options.engine.add_to(description);
  options.sampling.add_to(description);
  return parse_or_help(ranks.first(), "chat", arguments, description);
}

}  // namespace

int run_chat(Ranks& ranks, const std::vector<std::string>& arguments) {
  Options options;
  const auto values = parse(ranks, arguments, options);
  if (!values) return 0;
  options.engine.validate(ranks.control.size(), "chat");
  const ModelSource source = open_model(ranks, options.engine);
  runtime::SamplingParams params = options.sampling.params(*values, source.config);
  TANDEM_REQUIRE(params.n == 1, "--n ", params.n, ", but a chat shows one answer; leave --n out");
  const std::string device = choose_device(ranks, options.engine.device);
  const runtime::EngineConfig config = engine_config(ranks, options.engine, source.config, device);

  // Text first: a missing template is said before anything is loaded.
  std::optional<ModelText> text;
  ranks.control.on_first([&] {
    text.emplace(open_text(source.path));
    options.sampling.ban_words(text->tokenizer, params);
    const Conversation works(*text, options.system);
  });

  const MadeEngine made =
      make_engine(ranks, device, options.engine, source.config, source.checkpoint, config);
  runtime::EngineLoop loop(ranks.control, *made.engine,
                           {made.engine->limits(), true, source.config.eos_ids});
  if (!ranks.first()) {
    loop.follow();
    return 0;
  }
  Chat(loop, *text, options, params, config.max_model_len).run();
  loop.close();
  return 0;
}

}  // namespace tandem::launch
