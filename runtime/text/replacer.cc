// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/replacer.h"

#include <vector>

namespace tandem::runtime {

std::string literal_pattern(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view(R"(\^$.[]|()*+?{}#&-)").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

Regex pattern_from_json(const JsonNode& node) {
  if (const auto regex = node.find("Regex")) return Regex(regex->string());
  return Regex(literal_pattern(node.at("String").string()));
}

Replacer Replacer::from_json(const JsonNode& node) {
  const JsonNode pattern = node.at("pattern");
  std::string content(node.at("content").string());
  if (const auto regex = pattern.find("Regex")) {
    return {Regex(regex->string()), "", std::move(content)};
  }
  return {std::nullopt, std::string(pattern.at("String").string()), std::move(content)};
}

std::string Replacer::apply(std::string_view text) const {
  std::string out;
  std::size_t done = 0;
  if (regex_) {
    std::vector<Span> matches;
    regex_->find_all(text, 0, matches);
    for (const Span match : matches) {
      out.append(text, done, match.begin - done);
      out += content_;
      done = match.end;
    }
  } else if (!literal_.empty()) {
    for (auto found = text.find(literal_); found != std::string_view::npos;
         found = text.find(literal_, done)) {
      out.append(text, done, found - done);
      out += content_;
      done = found + literal_.size();
    }
  }
  out.append(text, done);
  return out;
}

}  // namespace tandem::runtime
