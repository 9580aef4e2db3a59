// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/gguf_pre_tokenizers.h"

#include <algorithm>

#include "kernels/device/error.h"

namespace tandem::runtime {
namespace {

constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepSeekV3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

GgufPreTokenizer gguf_pre_tokenizer(std::string_view name) {
  GgufPreTokenizer pre;
  if (is_one_of(name, {"", "default", "gpt-2", "gpt2", "phi-2", "mpt", "olmo", "jina-en"})) {
    pre.gpt2_regex = true;
  } else if (is_one_of(name, {"smollm", "starcoder", "refact", "command-r", "codeshell"})) {
    pre.splits = {R"(\p{N})"};
    pre.gpt2_regex = true;
  } else if (is_one_of(name, {"llama-bpe", "llama3", "llama-v3", "falcon3", "lfm2"})) {
    pre.splits = {kLlama3};
    pre.ignore_merges = pre.add_bos = true;
  } else if (is_one_of(name, {"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"})) {
    pre.splits = {kLlama3};
  } else if (is_one_of(name, {"qwen2", "deepseek-r1-qwen"})) {
    pre.splits = {kQwen2};
    pre.nfc = true;
  } else if (name == "stablelm2") {
    pre.splits = {kQwen2};
  } else if (name == "tekken") {
    pre.splits = {kTekken};
    pre.ignore_merges = pre.add_bos = true;
  } else if (is_one_of(name, {"gpt-4o", "llama4"})) {
    pre.splits = {kGpt4o};
  } else if (name == "deepseek-v3") {
    pre.splits = {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepSeekV3};
  } else if (name == "deepseek-coder") {
    pre.splits = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", "[一-龥ࠀ-一가-퟿]+",
                  R"(\p{N})"};
  } else {
    TANDEM_REQUIRE(false, "the GGUF file names the pre-tokenizer '", name,
                   "', which is not known; use the model's folder with tokenizer.json, or a file ",
                   "of the kind default, smollm, starcoder, llama-bpe, dbrx, qwen2, stablelm2, ",
                   "tekken, gpt-4o, deepseek-v3 or deepseek-coder");
  }
  return pre;
}

}  // namespace tandem::runtime
