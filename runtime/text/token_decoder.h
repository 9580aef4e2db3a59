// SPDX-License-Identifier: Apache-2.0
// Token texts back to text: the `decoder` of tokenizer.json as a list of stages that work on a
// stream, so that whole texts and streamed ones take the same path. `TokenDecoder` is immutable and
// thread-safe; a `DecodeRun` is the state of one text and must not outlive its decoder.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/json_node.h"

namespace tandem::runtime {

/// One step of the chain. It gets the tokens one after another and hands on what cannot change.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual void push(std::string token, std::vector<std::string>& out) = 0;
  virtual void finish(std::vector<std::string>&) {}
};

class DecodeRun {
 public:
  explicit DecodeRun(std::vector<std::unique_ptr<DecodeStage>> stages)
      : stages_(std::move(stages)) {}
  /// The new text that is decided once `token` is there.
  std::string push(std::string_view token);
  /// The rest, with U+FFFD for broken bytes; the run is over then.
  std::string finish();

 private:
  std::string through(std::size_t stage, std::vector<std::string> tokens);
  std::vector<std::unique_ptr<DecodeStage>> stages_;
};

class TokenDecoder {
 public:
  /// Describes one stage; `make` gives it a fresh state.
  class Step {
   public:
    virtual ~Step() = default;
    virtual std::unique_ptr<DecodeStage> make() const = 0;
    /// Rewrites `token` as in the middle of a text, to bytes that need not be whole characters.
    virtual void to_bytes(std::string& token) const = 0;
  };

  TokenDecoder();  ///< Tokens joined by spaces, as `tokenizers` does without a decoder.
  /// ConfigError for a wrong or unknown component (named).
  static TokenDecoder from_json(const JsonNode& node);

  DecodeRun start() const;
  /// The bytes that `token` adds in the middle of a text.
  std::string bytes_of(std::string_view token) const;

 private:
  void add(const JsonNode& node);
  std::vector<std::unique_ptr<Step>> steps_;
  bool fused_ = false;  ///< The steps so far give one long token, in fragments.
};

}  // namespace tandem::runtime
