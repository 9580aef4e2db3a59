// SPDX-License-Identifier: Apache-2.0
// Typed access to a GGUF file's metadata.
#include <type_traits>

#include "kernels/device/error.h"
#include "runtime/weights/gguf_reader.h"

namespace tandem::runtime {

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto at = metadata_.find(key);
  return at == metadata_.end() ? nullptr : &at->second;
}

void GgufFile::wrong(std::string_view key, std::string_view expected) const {
  throw ConfigError(concat(path(), ": metadata key ", key,
                           has(key) ? " must be " : " is missing, it is ", expected,
                           "; convert the model again with a current llama.cpp"));
}

std::int64_t GgufFile::integer(std::string_view key, std::int64_t min, std::int64_t max) const {
  const GgufValue* value = find(key);
  const auto* number = value == nullptr ? nullptr : std::get_if<std::int64_t>(value);
  if (number == nullptr || *number < min || *number > max)
    wrong(key, concat("a whole number from ", min, " to ", max));
  return *number;
}

std::int64_t GgufFile::integer_or(std::string_view key, std::int64_t min, std::int64_t max,
                                  std::int64_t fallback) const {
  return has(key) ? integer(key, min, max) : fallback;
}

double GgufFile::number(std::string_view key, double min, double max) const {
  const GgufValue* value = find(key);
  const auto* number = value == nullptr ? nullptr : std::get_if<double>(value);
  if (number == nullptr || !(*number >= min && *number <= max))
    wrong(key, concat("a number from ", min, " to ", max));
  return *number;
}

double GgufFile::number_or(std::string_view key, double min, double max, double fallback) const {
  return has(key) ? number(key, min, max) : fallback;
}

std::optional<bool> GgufFile::flag(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool* flag = std::get_if<bool>(value);
  if (flag == nullptr) wrong(key, "true or false");
  return *flag;
}

std::string GgufFile::text(std::string_view key) const {
  std::optional<std::string> text = text_if(key);
  if (!text) wrong(key, "a text");
  return std::move(*text);
}

std::optional<std::string> GgufFile::text_if(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* text = std::get_if<std::string>(value);
  if (text == nullptr) wrong(key, "a text");
  return *text;
}

template <typename T>
std::vector<T> GgufFile::list(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return {};
  const auto* list = std::get_if<std::vector<T>>(value);
  if (list == nullptr)
    wrong(key, std::is_same_v<T, std::string> ? "a list of texts" : "a list of numbers");
  return *list;
}

template std::vector<std::int64_t> GgufFile::list(std::string_view) const;
template std::vector<double> GgufFile::list(std::string_view) const;
template std::vector<std::string> GgufFile::list(std::string_view) const;

}  // namespace tandem::runtime
