// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja/source.h"

#include <algorithm>

#include "kernels/device/error.h"
#include "runtime/text/jinja/utf8.h"

namespace tandem::runtime::jinja {

std::string normalise_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
    } else {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

void fail_at(std::string_view source, Offset offset, const std::string& message) {
  const std::string_view before = source.substr(0, std::min<std::size_t>(offset, source.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t newline = before.rfind('\n');
  const std::string_view row =
      newline == std::string_view::npos ? before : before.substr(newline + 1);
  throw ConfigError(
      concat("chat template, line ", line, ", column ", 1 + count_characters(row), ": ", message));
}

}  // namespace tandem::runtime::jinja
