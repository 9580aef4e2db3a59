// SPDX-License-Identifier: Apache-2.0
#include "launch/doctor_check.h"

#include <algorithm>

#include "kernels/device/error.h"
#include "launch/text_table.h"

namespace tandem::launch {
namespace {

std::string size_text(std::int64_t bytes) {
  return bytes >= 1 << 20 ? concat(bytes >> 20, " MiB") : concat(bytes >> 10, " KiB");
}

}  // namespace

const char* name_of(Health health) {
  switch (health) {
    case Health::kGreen:
      return "green";
    case Health::kYellow:
      return "yellow";
    case Health::kRed:
      return "red";
  }
  return "?";
}

Health worst(const std::vector<Check>& checks) {
  Health result = Health::kGreen;
  for (const Check& check : checks) result = std::max(result, check.health);
  return result;
}

std::string checks_text(const std::vector<Check>& checks, bool color) {
  std::size_t width = 0;
  for (const Check& check : checks) width = std::max(width, check.topic.size());
  std::string text;
  for (const Check& check : checks) {
    const char* code = check.health == Health::kGreen    ? "\033[32m"
                       : check.health == Health::kYellow ? "\033[33m"
                                                         : "\033[31m";
    std::string word = name_of(check.health);
    word.resize(6, ' ');
    text += color ? concat(code, word, "\033[0m") : word;
    text +=
        "  " + check.topic + std::string(width - check.topic.size() + 2, ' ') + check.detail + "\n";
    if (!check.fix.empty()) text += std::string(width + 10, ' ') + "fix: " + check.fix + "\n";
  }
  return text;
}

std::string collectives_text(const std::vector<CollectiveRow>& rows) {
  std::vector<std::vector<std::string>> lines{{"all-reduce", "size", "latency us", "bus GB/s"}};
  for (const CollectiveRow& row : rows)
    lines.push_back({row.device, size_text(row.size_bytes), decimal(row.latency_us, 1),
                     decimal(row.bus_gbyte_per_s, 3)});
  return text_table(lines);
}

boost::json::array to_json(const std::vector<Check>& checks) {
  boost::json::array list;
  for (const Check& check : checks)
    list.push_back({{"topic", check.topic},
                    {"status", name_of(check.health)},
                    {"detail", check.detail},
                    {"fix", check.fix}});
  return list;
}

boost::json::array to_json(const std::vector<CollectiveRow>& rows) {
  boost::json::array list;
  for (const CollectiveRow& row : rows)
    list.push_back({{"device", row.device},
                    {"size_bytes", row.size_bytes},
                    {"latency_us", row.latency_us},
                    {"bus_gbyte_per_s", row.bus_gbyte_per_s}});
  return list;
}

}  // namespace tandem::launch
