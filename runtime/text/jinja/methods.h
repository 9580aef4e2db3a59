// SPDX-License-Identifier: Apache-2.0
// Text operations that methods and filters share. Pure functions but for the render's budget.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/jinja/access.h"
#include "runtime/text/jinja/runtime.h"

namespace tandem::runtime::jinja {

/// str.replace; `count` < 0 replaces all.
std::string replace_text(Runtime& rt, std::string_view text, std::string_view from,
                         std::string_view to, std::int64_t count);
/// Where `sub` is in `text` at or after `from`, or npos; linear in their lengths.
std::size_t find_text(Runtime& rt, std::string_view text, std::string_view sub, std::size_t from);
/// The last place, or npos.
std::size_t find_last(Runtime& rt, std::string_view text, std::string_view sub);
/// str.splitlines
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
/// The methods of str that search, split or test.
Method find_string_search_method(std::string_view name);

}  // namespace tandem::runtime::jinja
