// SPDX-License-Identifier: Apache-2.0
// The kinds of stages that a `PreTokenizer` is made of. Stages are immutable and thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/text/regex.h"

namespace tandem::runtime {

/// A text and the words in it, in order, none empty. Stages rewrite both.
struct Words {
  std::string text;
  std::vector<Span> spans;
};

class PreTokenizerStage {
 public:
  virtual ~PreTokenizerStage() = default;
  /// `at_start`: the first word begins where the user's whole text begins.
  virtual void apply(Words& words, bool at_start) const = 0;
};

/// What becomes of the matches of a pattern.
enum class SplitBehavior {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,  ///< As isolated, but neighbouring matches stay together.
};

/// Cuts words at matches; `invert`: at what is between the matches.
std::unique_ptr<PreTokenizerStage> make_split_stage(Regex regex, SplitBehavior behavior,
                                                    bool invert);

/// Writes every byte as a character; before that, cuts by GPT-2's pattern if `use_regex`.
std::unique_ptr<PreTokenizerStage> make_byte_level_stage(bool add_prefix_space, bool use_regex);

/// Where the replacement of a space is put before a word that has none.
enum class MetaspacePrefix { kAlways, kFirst, kNever };

/// Replaces spaces by the character `replacement`; `split`: and cuts before each.
std::unique_ptr<PreTokenizerStage> make_metaspace_stage(std::string replacement,
                                                        MetaspacePrefix prefix, bool split);

}  // namespace tandem::runtime
