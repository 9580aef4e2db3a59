// SPDX-License-Identifier: Apache-2.0
// Tokens to a tree, by recursive descent along jinja2's grammar (tags: for, if, set, macro, call,
// filter, with, block, print, autoescape, generation, break, continue). Trees of more than
// kMaxTreeDepth levels are refused.
#pragma once

#include <string_view>

#include "runtime/text/jinja/ast.h"

namespace tandem::runtime::jinja {

inline constexpr int kMaxTreeDepth = 200;

/// `source` comes from `normalise_source`. ConfigError with the place.
Block parse(std::string_view source);

}  // namespace tandem::runtime::jinja
