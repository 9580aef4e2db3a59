// SPDX-License-Identifier: Apache-2.0
#include "runtime/host_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace tandem::runtime {
namespace {

namespace fs = std::filesystem;

/// The number after "key" (with its colon or blank) in a file of lines.
std::optional<std::int64_t> field(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t value = 0;
    if (words >> name && name == key && words >> value) return value;
  }
  return std::nullopt;
}

/// Empty for "max" and where there is no such file.
std::optional<std::int64_t> number(const fs::path& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

/// What one control group leaves, or `least` when that is less.
std::int64_t left_by(const fs::path& group, const char* limit_file, const char* usage_file,
                     std::int64_t least) {
  const auto limit = number(group / limit_file), usage = number(group / usage_file);
  if (!limit || !usage) return least;
  const std::int64_t cache = field(group / "memory.stat", "inactive_file").value_or(0);
  return std::min(least, std::max<std::int64_t>(*limit - *usage + cache, 0));
}

std::int64_t left_by_groups(const fs::path& root, std::int64_t least) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    // "0::/path" is version 2, "5:memory:/path" version 1.
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = controllers == ",,";
    if (!unified && controllers.find(",memory,") == std::string::npos) continue;
    const fs::path top = root / (unified ? "sys/fs/cgroup" : "sys/fs/cgroup/memory");
    fs::path group = fs::path(line.substr(second + 1)).relative_path();
    while (true) {
      least = unified
                  ? left_by(top / group, "memory.max", "memory.current", least)
                  : left_by(top / group, "memory.limit_in_bytes", "memory.usage_in_bytes", least);
      if (group.empty()) break;
      group = group.parent_path();
    }
  }
  return least;
}

}  // namespace

std::int64_t available_host_bytes(const fs::path& root) {
  const auto available = field(root / "proc/meminfo", "MemAvailable:");
  return available ? left_by_groups(root, *available * 1024) : 0;
}

std::int64_t peak_resident_bytes(const fs::path& root) {
  return field(root / "proc/self/status", "VmHWM:").value_or(0) * 1024;
}

}  // namespace tandem::runtime
