// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/pre_tokenizer.h"

#include <string_view>

#include "kernels/device/error.h"
#include "runtime/text/replacer.h"
#include "runtime/text/utf8.h"

namespace tandem::runtime {
namespace {

SplitBehavior behavior_of(const JsonNode& node) {
  const std::string_view name = node.string();
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  node.fail(concat("names the unknown behavior '", name, "'"));
}

MetaspacePrefix prefix_of(const JsonNode& node) {
  const std::string_view scheme = node.string_or("prepend_scheme", "always");
  if (!node.boolean_or("add_prefix_space", true) || scheme == "never") {
    return MetaspacePrefix::kNever;
  }
  if (scheme == "always") return MetaspacePrefix::kAlways;
  if (scheme == "first") return MetaspacePrefix::kFirst;
  node.fail(concat("has the unknown prepend_scheme '", scheme, "'"));
}

/// The stages that are a split with a fixed pattern, by their type; null for others.
std::unique_ptr<PreTokenizerStage> make_fixed_split(std::string_view type, const JsonNode& node) {
  if (type == "Digits") {
    return make_split_stage(Regex(R"(\p{N})"),
                            node.boolean_or("individual_digits", false)
                                ? SplitBehavior::kIsolated
                                : SplitBehavior::kContiguous,
                            false);
  }
  if (type == "Whitespace") {
    return make_split_stage(Regex(R"(\w+|[^\w\s]+)"), SplitBehavior::kRemoved, true);
  }
  if (type == "WhitespaceSplit") {
    return make_split_stage(Regex(R"(\s)"), SplitBehavior::kRemoved, false);
  }
  if (type == "Punctuation") {
    const auto behavior = node.find("behavior");
    return make_split_stage(Regex(R"([\p{P}$+<=>^`|~])"),
                            behavior ? behavior_of(*behavior) : SplitBehavior::kIsolated, false);
  }
  if (type == "CharDelimiterSplit") {
    return make_split_stage(Regex(literal_pattern(node.at("delimiter").string())),
                            SplitBehavior::kRemoved, false);
  }
  return nullptr;
}

}  // namespace

void PreTokenizer::add(const JsonNode& node) {
  const std::string_view type = node.at("type").string();
  if (type == "Sequence") {
    const JsonNode list = node.at("pretokenizers");
    for (std::size_t i = 0; i < list.array().size(); ++i) add(list.element(i));
  } else if (type == "ByteLevel") {
    stages_.push_back(make_byte_level_stage(node.boolean_or("add_prefix_space", true),
                                            node.boolean_or("use_regex", true)));
  } else if (type == "Split") {
    stages_.push_back(make_split_stage(pattern_from_json(node.at("pattern")),
                                       behavior_of(node.at("behavior")),
                                       node.boolean_or("invert", false)));
  } else if (type == "Metaspace") {
    const JsonNode replacement = node.at("replacement");
    if (!is_one_character(replacement.string())) replacement.fail("must be one character");
    stages_.push_back(make_metaspace_stage(std::string(replacement.string()), prefix_of(node),
                                           node.boolean_or("split", true)));
  } else if (auto split = make_fixed_split(type, node)) {
    stages_.push_back(std::move(split));
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
