// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, equal id by id to Hugging Face `tokenizers`. Built once from a
// tokenizer.json (+ tokenizer_config.json) or from GGUF metadata; immutable and thread-safe after.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::runtime {

class DecodeRun;

using TokenId = std::int32_t;

/// What a GGUF file says about its tokenizer (`tokenizer.ggml.*`).
struct GgufVocabulary {
  std::string model;                ///< "gpt2" (byte-level BPE) or "llama" (SentencePiece BPE).
  std::string pre;                  ///< Pre-tokenizer name: "smollm", "llama-bpe", "qwen2", ...
  std::vector<std::string> tokens;  ///< Token texts by id.
  std::vector<float> scores;        ///< SentencePiece scores by id; empty for "gpt2".
  std::vector<std::int32_t> types;  ///< 1 normal, 2 unknown, 3 control, 4 user-defined, 6 byte.
  std::vector<std::string> merges;  ///< "left right" by rank; empty for "llama".
  std::optional<TokenId> bos, eos, unknown, padding;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
};

class Tokenizer {
 public:
  /// Reads `folder/tokenizer.json` and, if there, `folder/tokenizer_config.json`. ConfigError when
  /// a file is missing or malformed, or uses a component that is not known (named).
  static Tokenizer from_folder(const std::filesystem::path& folder);
  /// The same from parsed files; `config` is null when there is no tokenizer_config.json.
  static Tokenizer from_json(const boost::json::value& tokenizer, const boost::json::value& config);
  static Tokenizer from_gguf(const GgufVocabulary& vocabulary);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  ~Tokenizer();

  struct EncodeOptions {
    bool add_special_tokens = true;  ///< Apply the post-processor (BOS, EOS).
    bool parse_special = true;       ///< `<|im_end|>` in `text` becomes the special token.
  };
  /// `text` must be valid UTF-8 (ConfigError with the byte offset otherwise).
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options) const;
  std::vector<TokenId> encode(std::string_view text) const { return encode(text, {}); }

  /// The text of `ids`; ids outside the vocabulary are a ConfigError.
  std::string decode(const std::vector<TokenId>& ids, bool skip_special_tokens = true) const;

  /// The bytes that `id` adds in the middle of a text (no clean-up, may be half a character);
  /// none for an id that only pads the model's vocabulary.
  std::string_view token_bytes(TokenId id) const;
  bool is_special(TokenId id) const;
  std::optional<TokenId> token_to_id(std::string_view token) const;
  TokenId vocab_size() const;  ///< Highest id + 1.
  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  friend class StreamDecoder;
  std::unique_ptr<Impl> impl_;
};

/// Turns tokens into text as they come: `push` returns the longest new text that cannot change
/// any more (never half a character); `finish` returns the rest, with U+FFFD for broken bytes.
/// The concatenation equals `Tokenizer::decode` of all pushed ids. Ids that are no token (models
/// pad their vocabularies, and may sample such an id) add nothing.
class StreamDecoder {
 public:
  /// `tokenizer` must outlive it.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true);
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;
  ~StreamDecoder();

  std::string push(TokenId id);
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::unique_ptr<DecodeRun> run_;
};

}  // namespace tandem::runtime
