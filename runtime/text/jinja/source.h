// SPDX-License-Identifier: Apache-2.0
// Places in a template's source: byte offsets, shown to people as line and column. Every error of
// the interpreter goes through `fail_at`, so that all of them name the place. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::runtime::jinja {

/// Offset into the source after `normalise_source`.
using Offset = std::uint32_t;

/// Every line end becomes "\n" and one trailing line end goes, as jinja2 does before lexing.
std::string normalise_source(std::string_view source);

/// Throws ConfigError "chat template, line L, column C: <message>"; both count from 1, columns in
/// characters.
[[noreturn]] void fail_at(std::string_view source, Offset offset, const std::string& message);

}  // namespace tandem::runtime::jinja
