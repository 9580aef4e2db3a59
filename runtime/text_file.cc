// SPDX-License-Identifier: Apache-2.0
#include "runtime/text_file.h"

#include <fstream>
#include <sstream>

namespace tandem::runtime {

std::optional<std::string> read_text_file(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();  // an error of the read sets badbit; an empty file only failbit
  if (text.bad()) return std::nullopt;
  return std::move(text).str();
}

}  // namespace tandem::runtime
