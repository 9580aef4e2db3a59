// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer.h"

#include <algorithm>

#include "kernels/device/error.h"
#include "runtime/json_file.h"
#include "runtime/text/tokenizer_parts.h"
#include "runtime/text/utf8.h"

namespace tandem::runtime {

struct Tokenizer::Impl {
  explicit Impl(TokenizerParts all);

  std::string_view token_text(TokenId id) const;
  void encode_segment(std::string_view text, bool at_start, bool parse_special, BpeEncoder& encoder,
                      std::vector<TokenId>& out) const;

  TokenizerParts parts;
  std::vector<std::string> added_texts;  ///< By id; empty when the model's text counts.
  std::vector<bool> special;             ///< By id.
  std::vector<std::string> bytes;        ///< By id: `token_bytes`.
};

Tokenizer::Impl::Impl(TokenizerParts all) : parts(std::move(all)) {
  TokenId size = parts.model.vocabulary().size();
  for (const AddedToken& token : parts.added.tokens()) size = std::max(size, token.id + 1);
  added_texts.resize(static_cast<std::size_t>(size));
  special.resize(static_cast<std::size_t>(size));
  for (const AddedToken& token : parts.added.tokens()) {
    const std::string_view taken = token_text(token.id);
    TANDEM_REQUIRE(taken.empty() || taken == token.content, "the tokens '", taken, "' and '",
                   token.content, "' have the same id ", token.id,
                   "; download the tokenizer again");
    added_texts[static_cast<std::size_t>(token.id)] = token.content;
    if (token.special) special[static_cast<std::size_t>(token.id)] = true;
  }
  bytes.resize(static_cast<std::size_t>(size));
  for (TokenId id = 0; id < size; ++id) {
    bytes[static_cast<std::size_t>(id)] = parts.decoder.bytes_of(token_text(id));
  }
}

/// Empty for a hole.
std::string_view Tokenizer::Impl::token_text(TokenId id) const {
  const std::string& added = added_texts[static_cast<std::size_t>(id)];
  if (!added.empty() || id >= parts.model.vocabulary().size()) return added;
  return parts.model.vocabulary().text(id);
}

void Tokenizer::Impl::encode_segment(std::string_view text, bool at_start, bool parse_special,
                                     BpeEncoder& encoder, std::vector<TokenId>& out) const {
  const std::string normalized = parts.normalizer.apply(text);
  for (const Segment& segment : parts.added.split(normalized, true, parse_special)) {
    if (segment.token) {
      out.push_back(*segment.token);
      continue;
    }
    const Span span = segment.span;
    const Words words = parts.pre_tokenizer.split(
        normalized.substr(span.begin, span.end - span.begin), at_start && span.begin == 0);
    for (const Span word : words.spans) {
      encoder.encode(std::string_view(words.text).substr(word.begin, word.end - word.begin), out);
    }
  }
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::from_folder(const std::filesystem::path& folder) {
  const boost::json::value tokenizer = read_json_object(folder / "tokenizer.json");
  boost::json::value config;
  if (std::filesystem::exists(folder / "tokenizer_config.json")) {
    config = read_json_object(folder / "tokenizer_config.json");
  }
  return from_json(tokenizer, config);
}

Tokenizer Tokenizer::from_json(const boost::json::value& tokenizer,
                               const boost::json::value& config) {
  return Tokenizer(std::make_unique<Impl>(
      parts_from_json({tokenizer, "tokenizer.json:"}, {config, "tokenizer_config.json:"})));
}

Tokenizer Tokenizer::from_gguf(const GgufVocabulary& vocabulary) {
  return Tokenizer(std::make_unique<Impl>(parts_from_gguf(vocabulary)));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  const auto invalid = first_invalid_utf8(text);
  TANDEM_REQUIRE(!invalid, "the text is not valid UTF-8 at byte ", invalid.value_or(0),
                 "; convert it to UTF-8");
  std::vector<TokenId> out;
  const PostProcessor& post = impl_->parts.post_processor;
  if (options.add_special_tokens) out = post.prefix();
  BpeEncoder encoder(impl_->parts.model, text.size());
  for (const Segment& segment : impl_->parts.added.split(text, false, options.parse_special)) {
    if (segment.token) {
      out.push_back(*segment.token);
      continue;
    }
    const Span span = segment.span;
    impl_->encode_segment(text.substr(span.begin, span.end - span.begin), span.begin == 0,
                          options.parse_special, encoder, out);
  }
  if (options.add_special_tokens) out.insert(out.end(), post.suffix().begin(), post.suffix().end());
  return out;
}

std::string Tokenizer::decode(const std::vector<TokenId>& ids, bool skip_special_tokens) const {
  StreamDecoder decoder(*this, skip_special_tokens);
  std::string text;
  for (const TokenId id : ids) {
    TANDEM_REQUIRE(id >= 0 && id < vocab_size(), "the token id ", id, " is not between 0 and ",
                   vocab_size() - 1, "; use ids of this model's tokenizer");
    text += decoder.push(id);
  }
  return text + decoder.finish();
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return impl_->bytes[static_cast<std::size_t>(id)];
}

bool Tokenizer::is_special(TokenId id) const {
  return id >= 0 && id < vocab_size() && impl_->special[static_cast<std::size_t>(id)];
}

std::optional<TokenId> Tokenizer::token_to_id(std::string_view token) const {
  const auto added = impl_->parts.added.find(token);
  return added ? added : impl_->parts.model.vocabulary().find(token);
}

TokenId Tokenizer::vocab_size() const { return static_cast<TokenId>(impl_->bytes.size()); }
std::optional<TokenId> Tokenizer::bos() const { return impl_->parts.bos; }
std::optional<TokenId> Tokenizer::eos() const { return impl_->parts.eos; }

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(&tokenizer),
      skip_special_(skip_special_tokens),
      run_(std::make_unique<DecodeRun>(tokenizer.impl_->parts.decoder.start())) {}
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;
StreamDecoder::~StreamDecoder() = default;

std::string StreamDecoder::push(TokenId id) {
  if (id < 0 || id >= tokenizer_->vocab_size()) return "";
  if (skip_special_ && tokenizer_->is_special(id)) return "";
  const std::string_view text = tokenizer_->impl_->token_text(id);
  return text.empty() ? "" : run_->push(text);
}

std::string StreamDecoder::finish() { return run_->finish(); }

}  // namespace tandem::runtime
