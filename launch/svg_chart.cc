// SPDX-License-Identifier: Apache-2.0
#include "launch/svg_chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "kernels/device/error.h"

namespace tandem::launch {
namespace {

constexpr double kWidth = 460, kHeight = 330;                       // of one chart
constexpr double kLeft = 64, kRight = 16, kTop = 34, kBottom = 46;  // its margins
constexpr double kHead = 40, kFoot = 34, kLegendRow = 16;
/// Okabe and Ito: told apart by colour-blind readers too.
constexpr const char* kColors[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00",
                                   "#56B4E9", "#444444", "#7A3E9D", "#8B6B00"};

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

/// A tick's text: no exponents for what people read as a number.
std::string tick_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, std::abs(value) >= 1e6 ? "%.0e" : "%.10g", value);
  return text;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text)
    c == '<' ? out += "&lt;" : c == '>' ? out += "&gt;" : c == '&' ? out += "&amp;" : out += c;
  return out;
}

std::string text_at(double x, double y, const std::string& text, const std::string& more) {
  return concat("<text x=\"", number(x), "\" y=\"", number(y), "\" ", more, ">", escaped(text),
                "</text>\n");
}

/// One axis: values to pixels.
struct Axis {
  double low, high, pixel_low, pixel_high;
  bool log;
  std::vector<double> ticks;
  double at(double value) const {
    const auto f = [this](double v) { return log ? std::log(v) : v; };
    return pixel_low + (f(value) - f(low)) / (f(high) - f(low)) * (pixel_high - pixel_low);
  }
};

Axis make_axis(std::vector<double> values, bool log, double pixel_low, double pixel_high,
               std::vector<double> ticks) {
  if (values.empty()) values = {1, 2};
  auto [low, high] = std::minmax_element(values.begin(), values.end());
  double first = log ? *low : std::min(0.0, *low), last = *high;
  if (!(last > first)) last = first + std::max(1.0, std::abs(first));
  if (ticks.empty()) {
    ticks = nice_ticks(first, last, log);
    if (!log) {
      first = std::min(first, ticks.front());
      last = std::max(last, ticks.back());
    }
  }
  if (log) {
    const double room = std::pow(last / first, 0.06);
    first /= room;
    last *= room;
  }
  ticks.erase(std::remove_if(ticks.begin(), ticks.end(),
                             [&](double tick) { return tick < first || tick > last; }),
              ticks.end());
  return {first, last, pixel_low, pixel_high, log, ticks};
}

std::string frame(const Chart& chart, const Axis& x, const Axis& y) {
  std::string out = text_at(kLeft, kTop - 14, chart.title, "class=\"title\"");
  for (const double tick : y.ticks) {
    const double at = y.at(tick);
    out += concat("<path class=\"grid\" d=\"M", number(x.pixel_low), " ", number(at), "H",
                  number(x.pixel_high), "\"/>\n");
    out += text_at(x.pixel_low - 6, at + 4, tick_text(tick), "text-anchor=\"end\"");
  }
  for (const double tick : x.ticks) {
    const double at = x.at(tick);
    out += concat("<path class=\"grid\" d=\"M", number(at), " ", number(y.pixel_low), "V",
                  number(y.pixel_high), "\"/>\n");
    out += text_at(at, y.pixel_low + 16, tick_text(tick), "text-anchor=\"middle\"");
  }
  out += concat("<path class=\"axis\" d=\"M", number(x.pixel_low), " ", number(y.pixel_high), "V",
                number(y.pixel_low), "H", number(x.pixel_high), "\"/>\n");
  out += text_at((x.pixel_low + x.pixel_high) / 2, y.pixel_low + 36, chart.x_label,
                 "text-anchor=\"middle\"");
  const double middle = (y.pixel_low + y.pixel_high) / 2;
  return out + text_at(14, middle, chart.y_label,
                       concat("text-anchor=\"middle\" transform=\"rotate(-90 14 ", number(middle),
                              ")\""));
}

std::string draw(const ChartSeries& series, const Axis& x, const Axis& y,
                 const std::string& color) {
  std::string line, marks;
  for (const ChartPoint& point : series.points) {
    const std::string px = number(x.at(point.x)), py = number(y.at(point.y));
    line += concat(line.empty() ? "M" : "L", px, " ", py);
    if (series.dashed) continue;
    if (point.spread > 0 && (!y.log || point.y > point.spread))
      marks += concat("<path stroke=\"", color, "\" d=\"M", px, " ",
                      number(y.at(point.y - point.spread)), "V",
                      number(y.at(point.y + point.spread)), "\"/>\n");
    marks += concat("<circle cx=\"", px, "\" cy=\"", py, "\" r=\"3\" fill=\"", color, "\"/>\n");
    if (!point.label.empty())
      marks += text_at(x.at(point.x) + 6, y.at(point.y) - 5, point.label,
                       "class=\"label\" fill=\"" + color + "\"");
  }
  return concat("<path fill=\"none\" stroke=\"", color, "\" stroke-width=\"1.6\"",
                series.dashed ? " stroke-dasharray=\"5 4\"" : "", " d=\"", line, "\"/>\n", marks);
}

std::string color_of(const ChartSeries& series, std::size_t index) {
  return series.dashed ? "#999999" : kColors[index % std::size(kColors)];
}

std::string draw(const Chart& chart) {
  std::vector<double> xs, ys;
  for (const ChartSeries& series : chart.series)
    for (const ChartPoint& point : series.points) {
      xs.push_back(point.x);
      ys.push_back(point.y + point.spread);
      if (!chart.log_y || point.y > point.spread) ys.push_back(point.y - point.spread);
    }
  const Axis x = make_axis(xs, chart.log_x, kLeft, kWidth - kRight, chart.x_ticks);
  const Axis y = make_axis(ys, chart.log_y, kHeight - kBottom, kTop, {});
  std::string out = frame(chart, x, y), legend;
  double row = kTop + 10;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const ChartSeries& series = chart.series[i];
    const std::string color = color_of(series, i);
    out += draw(series, x, y, color);
    if (series.name.empty()) continue;
    legend += concat("<path stroke=\"", color, "\" stroke-width=\"2.5\"",
                     series.dashed ? " stroke-dasharray=\"5 4\"" : "", " d=\"M", number(kWidth + 2),
                     " ", number(row - 4), "h18\"/>\n");
    legend += text_at(kWidth + 25, row, series.name, "");
    row += kLegendRow;
  }
  return out + legend;
}

/// Room right of a chart for its legend.
double legend_width(const Chart& chart) {
  std::size_t longest = 0;
  for (const ChartSeries& series : chart.series) longest = std::max(longest, series.name.size());
  return longest == 0 ? 10 : 40 + 6.2 * static_cast<double>(longest);
}

}  // namespace

std::vector<double> nice_ticks(double low, double high, bool log) {
  std::vector<double> ticks;
  if (log) {
    const bool few = high / low < 100;
    for (double power = std::pow(10.0, std::floor(std::log10(low))); power <= high; power *= 10)
      for (const double step : {1.0, 2.0, 5.0})
        if ((few || step == 1.0) && power * step >= low && power * step <= high)
          ticks.push_back(power * step);
    return ticks;
  }
  const double rough = (high - low) / 5, power = std::pow(10.0, std::floor(std::log10(rough)));
  const double share = rough / power;
  const double step = power * (share > 5 ? 10 : share > 2 ? 5 : share > 1 ? 2 : 1);
  const auto first = static_cast<long>(std::floor(low / step + 1e-9));
  const auto last = static_cast<long>(std::ceil(high / step - 1e-9));
  for (long i = first; i <= last; ++i) ticks.push_back(static_cast<double>(i) * step);
  return ticks;
}

std::string svg_page(const std::string& title, const std::string& note,
                     const std::vector<Chart>& charts) {
  double cell = 0;
  for (const Chart& chart : charts) cell = std::max(cell, kWidth + legend_width(chart));
  const std::size_t columns = std::min<std::size_t>(charts.size(), 2);
  const std::size_t rows = (charts.size() + 1) / 2;
  const double width = cell * static_cast<double>(columns) + 10;
  const double height = kHead + kHeight * static_cast<double>(rows) + kFoot;
  std::string out = concat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", number(width), "\" height=\"",
      number(height), "\" viewBox=\"0 0 ", number(width), " ", number(height), "\">\n<style>\n",
      "text { font: 12px sans-serif; } .title { font-weight: bold; } .label { font-size: 10px; }\n",
      ".head { font-size: 16px; font-weight: bold; } .note { fill: #555; }\n",
      ".grid { stroke: #e4e4e4; } .axis { stroke: #333; fill: none; }\n</style>\n",
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
  out += text_at(20, 26, title, "class=\"head\"");
  for (std::size_t i = 0; i < charts.size(); ++i)
    out += concat("<g transform=\"translate(", number(cell * static_cast<double>(i % 2)), " ",
                  number(kHead + kHeight * static_cast<double>(i / 2)), ")\">\n", draw(charts[i]),
                  "</g>\n");
  return out + text_at(20, height - 14, note, "class=\"note\"") + "</svg>\n";
}

}  // namespace tandem::launch
