// SPDX-License-Identifier: Apache-2.0
// Values as text: Python's str() and repr(), json.dumps as `transformers` gives it to `tojson`,
// printf-style `%` and str.format. Byte-equal to Python.
#pragma once

#include <string>
#include <string_view>

#include "runtime/text/jinja/runtime.h"
#include "runtime/text/jinja/value.h"

namespace tandem::runtime::jinja {

/// str(value)
std::string to_text(Runtime& rt, const Value& value);
/// repr(value), appended.
void append_repr(Runtime& rt, std::string& out, const Value& value);
std::string repr(Runtime& rt, const Value& value);
/// repr of a float: the shortest digits that read back equal ("1e-05", "0.1", "inf").
std::string float_repr(double value);
/// repr of a str: quoted, with escapes.
void append_quoted(std::string& out, std::string_view text);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool has_indent = false;
  std::string indent;  ///< One level of it.
  std::string item_separator = ", ", key_separator = ": ";
};
std::string to_json(Runtime& rt, const Value& value, const JsonStyle& style);

/// `format % arguments`: a tuple gives several, a dict named ones, anything else is the only one.
std::string format_percent(Runtime& rt, std::string_view format, const Value& arguments);
/// `format.format(*positional, **named)`
std::string format_braces(Runtime& rt, std::string_view format, const CallArguments& arguments);
/// Python's format(value, spec): "[[fill]align][sign][#][0][width][,][.precision][type]".
std::string format_spec(Runtime& rt, const Value& value, std::string_view spec);
/// `value` with exactly `precision` digits: type is one of "eEfFgG".
std::string format_float(double value, int precision, char type, bool alternate = false);

/// & < > ' " as HTML entities.
std::string escape_html(std::string_view text);

}  // namespace tandem::runtime::jinja
