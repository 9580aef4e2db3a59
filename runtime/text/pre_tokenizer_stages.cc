// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/pre_tokenizer_stages.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/text/replacer.h"
#include "runtime/text/utf8.h"

namespace tandem::runtime {
namespace {

/// GPT-2's pattern, which ByteLevel uses unless `use_regex` is false.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct Part {
  Span span;
  bool is_match;
};

/// What stays of `parts`, which cover a word; `out` gets the pieces that are not empty.
void join_parts(std::vector<Part>& parts, SplitBehavior behavior, std::vector<Span>& out) {
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
  if (behavior == SplitBehavior::kMergedWithNext) std::reverse(parts.begin(), parts.end());
  for (const Part& part : parts) {
    switch (behavior) {
      case SplitBehavior::kRemoved:
        if (!part.is_match) out.push_back(part.span);
        break;
      case SplitBehavior::kIsolated:
        out.push_back(part.span);
        break;
      case SplitBehavior::kContiguous:
        merge_onto_last(part, part.is_match == previous_match);
        break;
      case SplitBehavior::kMergedWithPrevious:
      case SplitBehavior::kMergedWithNext:
        merge_onto_last(part, part.is_match && !previous_match);
        break;
    }
  }
  const auto added = out.begin() + static_cast<std::ptrdiff_t>(before);
  if (behavior == SplitBehavior::kMergedWithNext) std::reverse(added, out.end());
  out.erase(std::remove_if(added, out.end(), [](Span s) { return s.begin == s.end; }), out.end());
}

/// Replaces each word by what `function(word, out)` appends.
template <typename Function>
void rewrite(Words& words, Function function) {
  std::string text;
  text.reserve(words.text.size() + words.text.size() / 4);
  for (Span& span : words.spans) {
    const std::size_t begin = text.size();
    function(std::string_view(words.text).substr(span.begin, span.end - span.begin), text);
    span = {begin, text.size()};
  }
  words.text = std::move(text);
}

class SplitStage : public PreTokenizerStage {
 public:
  SplitStage(Regex regex, SplitBehavior behavior, bool invert)
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
  SplitBehavior behavior_;
  bool invert_;
};

class ByteLevelStage : public PreTokenizerStage {
 public:
  ByteLevelStage(bool add_prefix_space, bool use_regex) : add_prefix_space_(add_prefix_space) {
    if (use_regex) split_.emplace(Regex(kGpt2Pattern), SplitBehavior::kIsolated, false);
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
  bool add_prefix_space_;
  std::optional<SplitStage> split_;
};

class MetaspaceStage : public PreTokenizerStage {
 public:
  MetaspaceStage(std::string replacement, MetaspacePrefix prefix, bool split)
      : to_replacement_(" ", replacement), prefix_(prefix), replacement_(std::move(replacement)) {
    if (split) {
      split_.emplace(Regex(literal_pattern(replacement_)), SplitBehavior::kMergedWithNext, false);
    }
  }

  void apply(Words& words, bool at_start) const override {
    bool first = at_start;
    rewrite(words, [&](std::string_view word, std::string& out) {
      const std::string replaced = to_replacement_.apply(word);
      const bool wanted =
          prefix_ == MetaspacePrefix::kAlways || (prefix_ == MetaspacePrefix::kFirst && first);
      if (wanted && !replaced.starts_with(replacement_)) out += replacement_;
      out += replaced;
      first = false;
    });
    if (split_) split_->apply(words, at_start);
  }

 private:
  Replacer to_replacement_;
  MetaspacePrefix prefix_;
  std::string replacement_;
  std::optional<SplitStage> split_;
};

}  // namespace

std::unique_ptr<PreTokenizerStage> make_split_stage(Regex regex, SplitBehavior behavior,
                                                    bool invert) {
  return std::make_unique<SplitStage>(std::move(regex), behavior, invert);
}

std::unique_ptr<PreTokenizerStage> make_byte_level_stage(bool add_prefix_space, bool use_regex) {
  return std::make_unique<ByteLevelStage>(add_prefix_space, use_regex);
}

std::unique_ptr<PreTokenizerStage> make_metaspace_stage(std::string replacement,
                                                        MetaspacePrefix prefix, bool split) {
  return std::make_unique<MetaspaceStage>(std::move(replacement), prefix, split);
}

}  // namespace tandem::runtime
