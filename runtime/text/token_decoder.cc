// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/token_decoder.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>

#include "kernels/device/error.h"
#include "runtime/text/replacer.h"
#include "runtime/text/utf8.h"

namespace tandem::runtime {
namespace {

/// A pure function of a token and of its index in the text.
using TokenFunction = std::function<std::string(std::string token, std::size_t index)>;

class EachTokenStage : public DecodeStage {
 public:
  explicit EachTokenStage(const TokenFunction& function) : function_(function) {}
  void push(std::string token, std::vector<std::string>& out) override {
    out.push_back(function_(std::move(token), index_++));
  }

 private:
  const TokenFunction& function_;
  std::size_t index_ = 0;
};

/// For functions of one fused token whose end must be known.
class WholeTextStage : public DecodeStage {
 public:
  explicit WholeTextStage(const TokenFunction& function) : function_(function) {}
  void push(std::string token, std::vector<std::string>&) override { text_ += token; }
  void finish(std::vector<std::string>& out) override {
    out.push_back(function_(std::move(text_), 0));
  }

 private:
  const TokenFunction& function_;
  std::string text_;
};

class FunctionStep : public TokenDecoder::Step {
 public:
  FunctionStep(TokenFunction function, bool fused)
      : function_(std::move(function)), fused_(fused) {}
  std::unique_ptr<DecodeStage> make() const override {
    if (fused_) return std::make_unique<WholeTextStage>(function_);
    return std::make_unique<EachTokenStage>(function_);
  }
  void to_bytes(std::string& token) const override {
    if (!fused_) token = function_(std::move(token), 1);
  }

 private:
  TokenFunction function_;
  bool fused_;
};

/// Cuts up to `count` characters `content` off the front of a fused text.
class FrontStripStage : public DecodeStage {
 public:
  FrontStripStage(std::string_view content, std::size_t count) : content_(content), left_(count) {}
  void push(std::string token, std::vector<std::string>& out) override {
    std::size_t begin = 0;
    while (left_ > 0 && begin < token.size()) {
      if (std::string_view(token).substr(begin).starts_with(content_)) {
        begin += content_.size();
        --left_;
      } else {
        left_ = 0;
      }
    }
    out.push_back(token.substr(begin));
  }

 private:
  std::string_view content_;
  std::size_t left_;
};

class FrontStripStep : public TokenDecoder::Step {
 public:
  FrontStripStep(std::string content, std::size_t count)
      : content_(std::move(content)), count_(count) {}
  std::unique_ptr<DecodeStage> make() const override {
    return std::make_unique<FrontStripStage>(content_, count_);
  }
  void to_bytes(std::string&) const override {}

 private:
  std::string content_;
  std::size_t count_;
};

class ByteLevelStage : public DecodeStage {
 public:
  void push(std::string token, std::vector<std::string>& out) override {
    append_bytes_of_token(pending_, token);
    move_lossy(pending_, out.emplace_back(), false);
  }
  void finish(std::vector<std::string>& out) override {
    move_lossy(pending_, out.emplace_back(), true);
  }

 private:
  std::string pending_;
};

class ByteLevelStep : public TokenDecoder::Step {
 public:
  std::unique_ptr<DecodeStage> make() const override { return std::make_unique<ByteLevelStage>(); }
  void to_bytes(std::string& token) const override {
    std::string bytes;
    append_bytes_of_token(bytes, token);
    token = std::move(bytes);
  }
};

/// The byte of a token like `<0xE2>`.
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(&token[3], &token[5], value, 16);
  if (error != std::errc{} || end != &token[5]) return std::nullopt;
  return static_cast<char>(value);
}

/// A run of byte tokens is text if all of it is valid UTF-8, else one U+FFFD for each byte; so it
/// is held back until it ends.
class ByteFallbackStage : public DecodeStage {
 public:
  void push(std::string token, std::vector<std::string>& out) override {
    if (const auto byte = fallback_byte(token)) {
      run_ += *byte;
      return;
    }
    finish(out);
    out.push_back(std::move(token));
  }
  void finish(std::vector<std::string>& out) override {
    if (run_.empty()) return;
    if (first_invalid_utf8(run_)) {
      out.resize(out.size() + run_.size(), "\xEF\xBF\xBD");
    } else {
      out.push_back(run_);
    }
    run_.clear();
  }

 private:
  std::string run_;
};

class ByteFallbackStep : public TokenDecoder::Step {
 public:
  std::unique_ptr<DecodeStage> make() const override {
    return std::make_unique<ByteFallbackStage>();
  }
  void to_bytes(std::string& token) const override {
    if (const auto byte = fallback_byte(token)) token = std::string(1, *byte);
  }
};

/// Cuts up to `start` and `stop` characters `content` off the ends of a token.
std::string strip(std::string_view token, std::string_view content, std::int64_t start,
                  std::int64_t stop) {
  for (; start > 0 && token.starts_with(content); --start) token.remove_prefix(content.size());
  for (; stop > 0 && token.ends_with(content); --stop) token.remove_suffix(content.size());
  return std::string(token);
}

std::string one_character(const JsonNode& node) {
  const std::string_view text = node.string();
  if (!is_one_character(text)) node.fail("must be one character");
  return std::string(text);
}

std::int64_t count_of(const JsonNode& node) {
  const std::int64_t count = node.integer();
  if (count < 0) node.fail("must not be negative");
  return count;
}

std::unique_ptr<TokenDecoder::Step> make_strip(const JsonNode& node, bool fused) {
  std::string content = one_character(node.at("content"));
  const std::int64_t start = count_of(node.at("start")), stop = count_of(node.at("stop"));
  if (fused && stop == 0) {
    return std::make_unique<FrontStripStep>(std::move(content), static_cast<std::size_t>(start));
  }
  return std::make_unique<FunctionStep>(
      [=](std::string token, std::size_t) { return strip(token, content, start, stop); }, fused);
}

std::unique_ptr<TokenDecoder::Step> make_metaspace(const JsonNode& node, bool fused) {
  const std::string content = one_character(node.at("replacement"));
  const bool prepended = node.boolean_or("add_prefix_space", true) &&
                         node.string_or("prepend_scheme", "always") != "never";
  const Replacer to_nothing(content, ""), to_space(content, " ");
  return std::make_unique<FunctionStep>(
      [=](std::string token, std::size_t index) {
        return (index == 0 && prepended ? to_nothing : to_space).apply(token);
      },
      fused);
}

}  // namespace

std::string DecodeRun::through(std::size_t stage, std::vector<std::string> tokens) {
  for (; stage < stages_.size() && !tokens.empty(); ++stage) {
    std::vector<std::string> out;
    for (std::string& token : tokens) stages_[stage]->push(std::move(token), out);
    tokens = std::move(out);
  }
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

std::string DecodeRun::push(std::string_view token) { return through(0, {std::string(token)}); }

std::string DecodeRun::finish() {
  std::string text;
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    std::vector<std::string> out;
    stages_[stage]->finish(out);
    text += through(stage + 1, std::move(out));
  }
  return text;
}

TokenDecoder::TokenDecoder() {
  const auto join = [](std::string token, std::size_t index) {
    return index == 0 ? std::move(token) : " " + token;
  };
  steps_.push_back(std::make_unique<FunctionStep>(join, false));
}

void TokenDecoder::add(const JsonNode& node) {
  const std::string_view type = node.at("type").string();
  if (type == "Sequence") {
    const JsonNode list = node.at("decoders");
    for (std::size_t i = 0; i < list.array().size(); ++i) add(list.element(i));
  } else if (type == "ByteLevel") {
    steps_.push_back(std::make_unique<ByteLevelStep>());
    fused_ = true;
  } else if (type == "ByteFallback") {
    steps_.push_back(std::make_unique<ByteFallbackStep>());
  } else if (type == "Fuse") {
    fused_ = true;
  } else if (type == "Strip") {
    steps_.push_back(make_strip(node, fused_));
  } else if (type == "Metaspace") {
    steps_.push_back(make_metaspace(node, fused_));
  } else if (type == "Replace") {
    const Replacer replacer = Replacer::from_json(node);
    steps_.push_back(std::make_unique<FunctionStep>(
        [replacer](std::string token, std::size_t) { return replacer.apply(token); }, fused_));
  } else {
    node.fail(concat("is the unknown decoder '", type, "'"));
  }
}

TokenDecoder TokenDecoder::from_json(const JsonNode& node) {
  TokenDecoder decoder;
  decoder.steps_.clear();
  decoder.add(node);
  return decoder;
}

DecodeRun TokenDecoder::start() const {
  std::vector<std::unique_ptr<DecodeStage>> stages;
  for (const auto& step : steps_) stages.push_back(step->make());
  return DecodeRun(std::move(stages));
}

std::string TokenDecoder::bytes_of(std::string_view token) const {
  std::string bytes(token);
  for (const auto& step : steps_) step->to_bytes(bytes);
  return bytes;
}

}  // namespace tandem::runtime
