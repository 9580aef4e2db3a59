// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/plan_check.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/device/error.h"
#include "launch/text_table.h"

namespace tandem::launch {
namespace {

namespace json = boost::json;
using Key = std::pair<std::string, std::string>;

/// (case, metric) -> value of a document's rows, in their order.
std::vector<std::pair<Key, double>> rows_of(const std::string& source, const std::string& text) {
  std::vector<std::pair<Key, double>> rows;
  try {
    const json::value document = json::parse(text);
    for (const json::value& row : document.at("rows").as_array())
      rows.push_back({{row.at("case").as_string().c_str(), row.at("metric").as_string().c_str()},
                      row.at("value").to_number<double>()});
  } catch (const std::exception&) {
    throw ConfigError(concat(source,
                             " holds no rows of results; name files of tandem bench latency "
                             "--json or tandem plan --json"));
  }
  return rows;
}

}  // namespace

std::vector<CheckedRow> check_predictions(const std::string& predicted_source,
                                          const std::string& predicted,
                                          const std::vector<std::string>& sources,
                                          const std::vector<std::string>& results) {
  std::map<Key, double> expected;
  for (const auto& [key, value] : rows_of(predicted_source, predicted)) expected[key] = value;
  std::vector<CheckedRow> rows;
  for (std::size_t i = 0; i < results.size(); ++i)
    for (const auto& [key, measured] : rows_of(sources[i], results[i])) {
      const auto found = expected.find(key);
      if (found == expected.end() || measured <= 0) continue;
      rows.push_back({key.first, key.second, sources[i], found->second, measured});
    }
  TANDEM_REQUIRE(!rows.empty(), predicted_source,
                 " predicts no case that the results have; predict them with the same --name, "
                 "--batch, --input-len, --prefill-len and --tensor-parallel-size");
  return rows;
}

std::string check_table(const std::vector<CheckedRow>& rows) {
  std::vector<std::vector<std::string>> lines{
      {"case", "metric", "predicted", "measured", "error", "result"}};
  for (const CheckedRow& row : rows) {
    const std::string sign = row.error() > 0 ? "+" : "";
    lines.push_back({row.name, row.metric, decimal(row.predicted, 3), decimal(row.measured, 3),
                     sign + decimal(100 * row.error(), 1) + " %" +
                         (std::abs(row.error()) > kPlanErrorLimit ? " !" : ""),
                     row.source});
  }
  return text_table(lines);
}

bool within_limit(const std::vector<CheckedRow>& rows) {
  return std::all_of(rows.begin(), rows.end(), [](const CheckedRow& row) {
    return std::abs(row.error()) <= kPlanErrorLimit;
  });
}

json::array to_json(const std::vector<CheckedRow>& rows) {
  json::array list;
  for (const CheckedRow& row : rows)
    list.push_back(json::object{{"case", row.name},
                                {"metric", row.metric},
                                {"predicted", row.predicted},
                                {"measured", row.measured},
                                {"error", row.error()},
                                {"result", row.source}});
  return list;
}

}  // namespace tandem::launch
