// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/scaling_results.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "kernels/device/error.h"
#include "launch/text_table.h"

namespace tandem::launch {
namespace {

namespace json = boost::json;

std::string with_spread(const MedianSpread& value, int digits) {
  return decimal(value.median, digits) + " +- " + decimal(value.spread, digits);
}

/// a / b; relative spreads are independent and add in squares.
MedianSpread ratio(const MedianSpread& a, const MedianSpread& b) {
  const double value = a.median / b.median;
  return {value, value * std::hypot(a.spread / a.median, b.spread / b.median)};
}

MedianSpread scaled(const MedianSpread& a, double factor) {
  return {a.median * factor, a.spread * factor};
}

std::string text_of(const json::value& value) {
  return value.is_string() ? std::string(value.as_string().c_str()) : json::serialize(value);
}

/// A row's case without the number of ranks: "llama-3-8b bf16" and "batch1 ctx128".
std::pair<std::string, std::string> split_case(const LatencyDocument& document,
                                               const json::object& row) {
  const std::string name = text_of(row.at("case"));
  const std::string mark = concat(" tp", document.ranks(), " ");
  const auto at = name.find(mark);
  TANDEM_REQUIRE(at != std::string::npos, document.source, ": case \"", name, "\" is not of ",
                 document.ranks(), " ranks; measure again with tandem bench scaling");
  return {name.substr(0, at), name.substr(at + mark.size())};
}

/// What of a document must be equal in all, in words.
std::map<std::string, std::string> work_of(const LatencyDocument& document) {
  std::map<std::string, std::string> work;
  for (const auto& [key, value] : document.json.at("work").as_object())
    if (key != "ranks") work[std::string(key)] = text_of(value);
  for (const auto& [key, value] : document.json.at("machine").as_object())
    work["machine's " + std::string(key)] = text_of(value);
  work["commit"] = text_of(document.json.at("commit"));
  std::string cases;
  for (const json::value& row : document.json.at("rows").as_array()) {
    const auto [model, shape] = split_case(document, row.as_object());
    cases += concat(cases.empty() ? "" : ", ", shape);
  }
  work["list of cases"] = cases;
  return work;
}

void require_equal_work(const LatencyDocument& first, const LatencyDocument& other) {
  const auto ours = work_of(first);
  auto theirs = work_of(other);
  for (const auto& [key, value] : ours)
    TANDEM_REQUIRE(theirs[key] == value, "unequal work is not compared: the ", key, " is ", value,
                   " in ", first.source, " and ", theirs[key].empty() ? "absent" : theirs[key],
                   " in ", other.source,
                   "; measure both with one tandem bench scaling command, with the same options");
}

/// Percent of linear and the like come from the base, so it is last to be filled in.
void relate(ScalingCase& item) {
  const ScalingPoint base = item.points.front();
  for (ScalingPoint& point : item.points) {
    point.speed_up = ratio(base.latency_ms, point.latency_ms);
    if (point.ranks == base.ranks) point.speed_up = {1, 0};
    point.efficiency =
        scaled(point.speed_up, static_cast<double>(base.ranks) / static_cast<double>(point.ranks));
  }
}

/// Tokens that one latency stands for: "batch4 ctx128" 4, "batch1 prefill512" 512.
double tokens_of(const std::string& shape) {
  int batch = 1, length = 1;
  if (std::sscanf(shape.c_str(), "batch%d prefill%d", &batch, &length) < 2) length = 1;
  return static_cast<double>(batch) * length;
}

ScalingPoint make_point(const std::vector<const json::object*>& rows, int ranks, double tokens) {
  ScalingPoint point;
  point.ranks = ranks;
  std::vector<double> values;
  for (const json::object* row : rows) {
    values.push_back(row->at("value").to_number<double>());
    point.runs += row->at("runs").to_number<std::size_t>();
  }
  point.latency_ms = median_spread(values);
  if (rows.size() == 1) point.latency_ms.spread = rows[0]->at("spread").to_number<double>();
  point.tokens_per_s.median = tokens * 1000.0 / point.latency_ms.median;
  point.tokens_per_s.spread =
      point.tokens_per_s.median * point.latency_ms.spread / point.latency_ms.median;
  return point;
}

Chart chart_of(const std::vector<ScalingCase>& cases, const std::string& title,
               const std::string& y_label, MedianSpread ScalingPoint::*value) {
  Chart chart{title, "ranks", y_label, {}, true, false, {}};
  for (const ScalingPoint& point : cases.front().points) chart.x_ticks.push_back(point.ranks);
  for (const ScalingCase& item : cases) {
    ChartSeries series;
    series.name = item.shape;
    for (const ScalingPoint& point : item.points)
      series.points.push_back(
          {double(point.ranks), (point.*value).median, (point.*value).spread, ""});
    chart.series.push_back(series);
  }
  return chart;
}

std::vector<ScalingCase> with_metric(const std::vector<ScalingCase>& cases,
                                     const std::string& metric) {
  std::vector<ScalingCase> result;
  for (const ScalingCase& item : cases)
    if (item.metric == metric) result.push_back(item);
  return result;
}

/// The line of perfect scaling, below the measured ones.
void add_ideal(Chart& chart, const std::vector<ScalingPoint>& points, bool efficiency) {
  ChartSeries ideal{"linear", {}, true};
  for (const ScalingPoint& point : points)
    ideal.points.push_back({double(point.ranks),
                            efficiency ? 1.0 : double(point.ranks) / points.front().ranks, 0, ""});
  chart.series.push_back(ideal);
}

}  // namespace

int LatencyDocument::ranks() const {
  return json.at("work").as_object().at("ranks").to_number<int>();
}

LatencyDocument parse_latency_document(const std::string& source, const std::string& text) {
  // A launcher may have printed lines of its own before.
  const auto begin = text.find("{\"bench\"");
  json::error_code error;
  const json::value value =
      begin == std::string::npos ? json::value() : json::parse(text.substr(begin), error);
  const json::object* object = value.if_object();
  const bool usable = !error && object != nullptr && object->contains("rows") &&
                      object->contains("work") && object->contains("machine") &&
                      object->contains("commit") && !object->at("rows").as_array().empty();
  TANDEM_REQUIRE(usable, source,
                 " holds no results of tandem bench latency; make them with tandem bench latency "
                 "--json FILE");
  return {source, *object};
}

std::vector<ScalingCase> scaling_cases(const std::vector<LatencyDocument>& documents) {
  std::map<int, std::vector<const LatencyDocument*>> by_size;
  for (const LatencyDocument& document : documents) {
    require_equal_work(documents.front(), document);
    by_size[document.ranks()].push_back(&document);
  }
  TANDEM_REQUIRE(by_size.size() > 1,
                 "scaling compares at least two numbers of ranks; give for example --sizes 1 2");
  std::vector<ScalingCase> cases;
  const auto& rows = documents.front().json.at("rows").as_array();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto [model, shape] = split_case(documents.front(), rows[i].as_object());
    ScalingCase item{model, shape, text_of(rows[i].at("metric")), {}};
    for (const auto& [ranks, same_size] : by_size) {
      std::vector<const json::object*> samples;
      for (const LatencyDocument* document : same_size)
        samples.push_back(&document->json.at("rows").as_array().at(i).as_object());
      item.points.push_back(make_point(samples, ranks, tokens_of(shape)));
    }
    relate(item);
    cases.push_back(std::move(item));
  }
  return cases;
}

std::string scaling_table(const std::vector<ScalingCase>& cases) {
  std::vector<std::vector<std::string>> lines{
      {"case", "ranks", "metric", "ms", "tokens/s", "speed-up", "efficiency"}};
  for (const ScalingCase& item : cases)
    for (const ScalingPoint& point : item.points)
      lines.push_back({item.model + " " + item.shape, std::to_string(point.ranks), item.metric,
                       with_spread(point.latency_ms, 3), decimal(point.tokens_per_s.median, 1),
                       with_spread(point.speed_up, 2),
                       decimal(100 * point.efficiency.median, 1) + " %"});
  return text_table(lines);
}

std::string scaling_csv(const std::vector<ScalingCase>& cases) {
  std::string text =
      "model,case,metric,ranks,runs,latency_ms,latency_spread_ms,tokens_per_s,speed_up,"
      "speed_up_spread,efficiency\n";
  for (const ScalingCase& item : cases)
    for (const ScalingPoint& point : item.points)
      text += concat(
          '"', item.model, "\",", item.shape, ",", item.metric, ",", point.ranks, ",", point.runs,
          ",", decimal(point.latency_ms.median, 4), ",", decimal(point.latency_ms.spread, 4), ",",
          decimal(point.tokens_per_s.median, 2), ",", decimal(point.speed_up.median, 4), ",",
          decimal(point.speed_up.spread, 4), ",", decimal(point.efficiency.median, 4), "\n");
  return text;
}

std::string scaling_svg(const std::vector<ScalingCase>& cases, const std::vector<Chart>& more,
                        const std::string& note) {
  std::vector<Chart> charts;
  for (const auto& [metric, title] :
       {std::pair{"tpot_ms", "Time per output token"}, std::pair{"ttft_ms", "Time to first token"}})
    if (const auto chosen = with_metric(cases, metric); !chosen.empty()) {
      charts.push_back(chart_of(chosen, title, "ms", &ScalingPoint::latency_ms));
      charts.push_back(chart_of(
          chosen,
          concat("Throughput (", metric == std::string("tpot_ms") ? "decode" : "prefill", ")"),
          "tokens/s", &ScalingPoint::tokens_per_s));
    }
  charts.push_back(chart_of(cases, "Speed-up", "times", &ScalingPoint::speed_up));
  add_ideal(charts.back(), cases.front().points, false);
  charts.push_back(chart_of(cases, "Efficiency", "share of linear", &ScalingPoint::efficiency));
  add_ideal(charts.back(), cases.front().points, true);
  charts.insert(charts.end(), more.begin(), more.end());
  return svg_page(cases.front().model + ": scaling over ranks", note, charts);
}

void add_rows(const std::vector<ScalingCase>& cases, BenchResults& results) {
  for (const ScalingCase& item : cases)
    for (const ScalingPoint& point : item.points) {
      const std::string name = concat(item.model, " tp", point.ranks, " ", item.shape);
      const auto add = [&](const char* metric, const char* unit, const MedianSpread& value) {
        results.add({name, metric, unit, value.median, value.spread, 0, true, point.runs});
      };
      add(item.metric.c_str(), "ms", point.latency_ms);
      add("tokens_per_s", "tokens/s", point.tokens_per_s);
      add("speed_up", "times", point.speed_up);
      add("efficiency", "share of linear", point.efficiency);
    }
}

}  // namespace tandem::launch
