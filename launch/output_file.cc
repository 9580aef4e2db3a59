// SPDX-License-Identifier: Apache-2.0
#include "launch/output_file.h"

#include <filesystem>
#include <fstream>
#include <map>

#include "kernels/device/error.h"

namespace tandem::launch {
namespace {

void require_written(bool good, const std::string& flag, const std::string& path) {
  TANDEM_REQUIRE(good, flag, " ", path,
                 " cannot be written; name a file in a folder that exists and is writable");
}

}  // namespace

void check_outputs(const std::vector<OutputFile>& files) {
  std::map<std::filesystem::path, std::string> taken;
  for (const auto& [flag, path] : files) {
    if (path.empty() || path == "-") continue;
    const auto [other, fresh] =
        taken.try_emplace(std::filesystem::absolute(path).lexically_normal(), flag);
    TANDEM_REQUIRE(fresh, flag, " and ", other->second, " both name ", path,
                   "; give each a file of its own");
    std::error_code ignored;
    const bool existed = std::filesystem::exists(path, ignored);
    require_written(std::ofstream(path, std::ios::app).good(), flag, path);
    if (!existed) std::filesystem::remove(path, ignored);
  }
}

void check_outputs(Ranks& ranks, const std::vector<OutputFile>& files) {
  ranks.control.on_first([&] { check_outputs(files); });
}

void write_text_file(const std::string& flag, const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  require_written(file.flush().good(), flag, path);
}

}  // namespace tandem::launch
