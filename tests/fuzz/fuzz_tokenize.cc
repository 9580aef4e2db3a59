// SPDX-License-Identifier: Apache-2.0
// Texts and ids through tokenizers of each kind. The first byte picks the tokenizer. What is
// claimed: byte-level text survives the round trip, streamed text equals decoded text, and no
// piece of it is half a character.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/text/tokenizer.h"
#include "runtime/text/utf8.h"

namespace {

using namespace tandem::runtime;

void require(bool condition) {
  if (!condition) std::abort();
}

GgufVocabulary byte_level(const char* pre) {
  GgufVocabulary gguf;
  gguf.model = "gpt2";
  gguf.pre = pre;
  for (int byte = 0; byte < 256; ++byte) {
    append_utf8(gguf.tokens.emplace_back(), character_of_byte(static_cast<std::uint8_t>(byte)));
  }
  for (const char* token : {"ab", "abab", "aa", "Ġa", "ĠĠ", "ĠĠĠĠ", "ĊĊ", "<|e|>", "<|e|>x"}) {
    gguf.tokens.emplace_back(token);
  }
  gguf.types.assign(gguf.tokens.size(), 1);
  gguf.types[263] = gguf.types[264] = 3;
  gguf.merges = {"a b", "ab ab", "a a", "Ġ a", "Ġ Ġ", "ĠĠ ĠĠ", "Ċ Ċ"};
  gguf.add_bos = false;
  return gguf;
}

GgufVocabulary sentencepiece() {
  GgufVocabulary gguf;
  gguf.model = "llama";
  gguf.tokens = {"<unk>", "<s>", "</s>"};
  gguf.types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    constexpr char kDigits[] = "0123456789ABCDEF";
    gguf.tokens.push_back(std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + ">");
    gguf.types.push_back(6);
  }
  for (const char* token : {"▁", "a", "b", "é", "▁a", "ab", "▁▁", "▁ab", "aab"}) {
    gguf.tokens.emplace_back(token);
    gguf.types.push_back(1);
  }
  for (std::size_t id = 0; id < gguf.tokens.size(); ++id) {
    gguf.scores.push_back(-static_cast<float>(id));
  }
  gguf.unknown = 0;
  return gguf;
}

const std::vector<Tokenizer>& tokenizers() {
  static const std::vector<Tokenizer> all = [] {
    std::vector<Tokenizer> made;
    for (const char* pre : {"gpt2", "smollm", "llama-bpe", "tekken", "deepseek-v3", "gpt-4o"}) {
      made.push_back(Tokenizer::from_gguf(byte_level(pre)));
    }
    made.push_back(Tokenizer::from_gguf(sentencepiece()));
    return made;
  }();
  return all;
}

void check_stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip) {
  StreamDecoder stream(tokenizer, skip);
  std::string text;
  for (const TokenId id : ids) {
    const std::string piece = stream.push(id);
    require(!first_invalid_utf8(piece));
    text += piece;
  }
  text += stream.finish();
  require(text == tokenizer.decode(ids, skip));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t kind = data[0] % tokenizers().size();
  const Tokenizer& tokenizer = tokenizers()[kind];

  std::string raw(reinterpret_cast<const char*>(data + 1), size - 1), text;
  move_lossy(raw, text, true);
  for (const bool special : {false, true}) {
    const auto ids = tokenizer.encode(text, {special, special});
    if (kind != tokenizers().size() - 1) require(tokenizer.decode(ids, false) == text);
    check_stream(tokenizer, ids, special);
  }
  std::vector<TokenId> ids;
  for (std::size_t i = 1; i < size; ++i) {
    ids.push_back((data[i] * 3 + (i & 1)) % tokenizer.vocab_size());
  }
  check_stream(tokenizer, ids, false);
  return 0;
}
