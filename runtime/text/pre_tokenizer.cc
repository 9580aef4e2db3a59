// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/pre_tokenizer.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "kernels/device/error.h"
#include "runtime/text/replacer.h"
#include "runtime/text/utf8.h"

namespace tandem::runtime {
namespace {

/// GPT-2's pattern, which ByteLevel uses unless `use_regex` is false.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

Behavior behavior_of(const JsonNode& node) {
  const std::string_view name = node.string();
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  node.fail(concat("names the unknown behavior '", name, "'"));
}

struct Part {
  Span span;
  bool is_match;
};

/// What stays of `parts`, which cover a word; `out` gets the pieces that are not empty.
void join_parts(std::vector<Part>& parts, Behavior behavior, std::vector<Span>& out) {
  const std::size_t before = out.size();
  bool previous_match = false;
  const auto merge_onto_last = [&](const Part& part, bool merge) {
    if (merge && out.size() > before) {
      out.back() = {std::min(out.back().begin, part.span.begin),
                    std::max(out.back().end, part.span.end)};
    } else {
      out.push_back(part.span);
    }
    previous_match = part.is_match;
  };
  if (behavior == Behavior::kMergedWithNext) std::reverse(parts.begin(), parts.end());
  for (const Part& part : parts) {
    switch (behavior) {
      case Behavior::kRemoved:
        if (!part.is_match) out.push_back(part.span);
        break;
      case Behavior::kIsolated:
        out.push_back(part.span);
        break;
      case Behavior::kContiguous:
        merge_onto_last(part, part.is_match == previous_match);
        break;
      case Behavior::kMergedWithPrevious:
      case Behavior::kMergedWithNext:
        merge_onto_last(part, part.is_match && !previous_match);
        break;
    }
  }
  const auto added = out.begin() + static_cast<std::ptrdiff_t>(before);
  if (behavior == Behavior::kMergedWithNext) std::reverse(added, out.end());
  out.erase(std::remove_if(added, out.end(), [](Span s) { return s.begin == s.end; }), out.end());
}

class SplitStage : public PreTokenizerStage {
 public:
  SplitStage(Regex regex, Behavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}

  void apply(Words& words, bool) const override {
    std::vector<Span> out, matches;
    std::vector<Part> parts;
    out.reserve(words.spans.size());
    for (const Span word : words.spans) {
      matches.clear();
      regex_.find_all(std::string_view(words.text).substr(word.begin, word.end - word.begin),
                      word.begin, matches);
      parts.clear();
      std::size_t position = word.begin;
      for (const Span match : matches) {
        if (position != match.begin) parts.push_back({{position, match.begin}, invert_});
        parts.push_back({match, !invert_});
        position = match.end;
      }
      if (position != word.end) parts.push_back({{position, word.end}, invert_});
      join_parts(parts, behavior_, out);
    }
    words.spans = std::move(out);
  }

 private:
  Regex regex_;
  Behavior behavior_;
  bool invert_;
};

class ByteLevelStage : public PreTokenizerStage {
 public:
  ByteLevelStage(bool add_prefix_space, bool use_regex) : add_prefix_space_(add_prefix_space) {
    if (use_regex) split_.emplace(Regex(kGpt2Pattern), Behavior::kIsolated, false);
  }

  void apply(Words& words, bool at_start) const override {
    if (add_prefix_space_) {
      rewrite(words, [](std::string_view word, std::string& out) {
        if (!word.starts_with(' ')) out += ' ';
        out += word;
      });
    }
    if (split_) split_->apply(words, at_start);
    rewrite(words,
            [](std::string_view word, std::string& out) { append_byte_alphabet(out, word); });
  }

 private:
  template <typename Function>
  static void rewrite(Words& words, Function function) {
    std::string text;
    text.reserve(words.text.size() + words.text.size() / 4);
    for (Span& span : words.spans) {
      const std::size_t begin = text.size();
      function(std::string_view(words.text).substr(span.begin, span.end - span.begin), text);
      span = {begin, text.size()};
    }
    words.text = std::move(text);
  }

  bool add_prefix_space_;
  std::optional<SplitStage> split_;
};

}  // namespace

void PreTokenizer::add(const JsonNode& node) {
  const std::string_view type = node.at("type").string();
  const auto add_split = [&](Regex regex, Behavior behavior, bool invert) {
    stages_.push_back(std::make_unique<SplitStage>(std::move(regex), behavior, invert));
  };
  if (type == "Sequence") {
    const JsonNode list = node.at("pretokenizers");
    for (std::size_t i = 0; i < list.array().size(); ++i) add(list.element(i));
  } else if (type == "ByteLevel") {
    stages_.push_back(std::make_unique<ByteLevelStage>(node.boolean_or("add_prefix_space", true),
                                                       node.boolean_or("use_regex", true)));
  } else if (type == "Split") {
    add_split(pattern_from_json(node.at("pattern")), behavior_of(node.at("behavior")),
              node.boolean_or("invert", false));
  } else if (type == "Digits") {
    add_split(
        Regex(R"(\p{N})"),
        node.boolean_or("individual_digits", false) ? Behavior::kIsolated : Behavior::kContiguous,
        false);
  } else {
    node.fail(concat("is the unknown pre-tokenizer '", type, "'"));
  }
}

PreTokenizer PreTokenizer::from_json(const JsonNode& node) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.add(node);
  return pre_tokenizer;
}

Words PreTokenizer::split(std::string text, bool at_start) const {
  Words words{std::move(text), {}};
  if (!words.text.empty()) words.spans.push_back({0, words.text.size()});
  for (const auto& stage : stages_) stage->apply(words, at_start);
  return words;
}

}  // namespace tandem::runtime
