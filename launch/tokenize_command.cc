// SPDX-License-Identifier: Apache-2.0
#include "launch/tokenize_command.h"

#include <boost/json.hpp>
#include <cstdio>

#include "launch/command_line.h"
#include "launch/prompts.h"
#include "runtime/weights/model_path.h"

namespace tandem::launch {
namespace {

namespace json = boost::json;
namespace po = boost::program_options;

struct Options {
  std::string model;
  PromptOptions text;
  std::vector<std::int32_t> ids;
  bool json = false, no_special_tokens = false;
};

void print_ids(const runtime::Tokenizer& tokenizer, const std::vector<std::int32_t>& ids, bool as_json) {
  if (as_json) {
    json::array pieces;
    for (const std::int32_t id : ids) pieces.emplace_back(tokenizer.decode({id}, false));
    std::printf("%s\n", json::serialize(json::object{{"token_ids", json::value_from(ids)},
                                                     {"pieces", pieces}})
                            .c_str());
    return;
  }
  for (std::size_t i = 0; i < ids.size(); ++i) std::printf("%s%d", i == 0 ? "" : " ", ids[i]);
  std::printf("\n");
}

void tokenize(const Options& options) {
  const ModelText text = open_text(runtime::resolve_model_path(options.model));
  if (!options.ids.empty()) {
    const std::string decoded = text.tokenizer.decode(options.ids, options.no_special_tokens);
    std::printf("%s\n", options.json ? json::serialize(json::object{{"text", decoded}}).c_str()
                                     : decoded.c_str());
    return;
  }
  for (const std::string& prompt : read_prompts(options.text))
    print_ids(text.tokenizer,
              options.text.chat || !options.no_special_tokens
                  ? tokenize_prompt(text, options.text, prompt)
                  : text.tokenizer.encode(prompt, {.add_special_tokens = false, .parse_special = true}),
              options.json);
}

}  // namespace

int run_tokenize(Ranks& ranks, const std::vector<std::string>& arguments) {
  Options options;
  options.text.command = "tokenize";
  options.text.flag = "--text";
  po::options_description description("usage: tandem tokenize --model MODEL --text TEXT | --ids ID...");
  description.add_options()
      ("model,m", po::value(&options.model), "folder, .gguf file or hub name")
      ("text,t", po::value(&options.text.prompts), "text to tokenize; default: standard input")
      ("text-file", po::value(&options.text.files), "file to tokenize; - is standard input")
      ("chat", po::bool_switch(&options.text.chat), "put the text into the model's chat template first")
      ("ids", po::value(&options.ids)->multitoken(), "token ids to turn into text")
      ("no-special-tokens", po::bool_switch(&options.no_special_tokens), "add none; with --ids: leave them out")
      ("json", po::bool_switch(&options.json), "JSON on standard output")
      ("help,h", "this text");
  if (!parse_or_help(ranks.first(), "tokenize", arguments, description)) return 0;
  TANDEM_REQUIRE(!options.model.empty(),
                 "no model was named; use tandem tokenize --model FOLDER --text TEXT");
  ranks.control.on_first([&] { tokenize(options); });
  return 0;
}

}  // namespace tandem::launch
