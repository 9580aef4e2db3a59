// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "kernels/device/error.h"
#include "launch/bench/domains_data.h"

namespace tandem::bench {
namespace {

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

constexpr double kLeft = 430, kWidth = 460, kBar = 7, kRow = 34, kTop = 56;

struct Bar {
  const char* name;
  const char* color;
  double DomainsVerdict::*value;
};
constexpr Bar kBars[] = {{"idle", "#9aa5b1", &DomainsVerdict::idle},
                         {"same domain", "#c2410c", &DomainsVerdict::same},
                         {"separate domains", "#0f766e", &DomainsVerdict::separate}};

/// Powers of ten around all values.
class Axis {
 public:
  explicit Axis(const std::vector<DomainsVerdict>& verdicts) {
    double low = std::numeric_limits<double>::max(), high = 0;
    for (const DomainsVerdict& verdict : verdicts)
      for (const Bar& bar : kBars) {
        low = std::min(low, std::max(verdict.*bar.value, 1e-3));
        high = std::max(high, verdict.*bar.value);
      }
    low_ = static_cast<int>(std::floor(std::log10(std::min(low, 1e6))));
    high_ = std::max(low_ + 1, static_cast<int>(std::ceil(std::log10(std::max(high, 1e-3)))));
  }
  int low() const { return low_; }
  int high() const { return high_; }
  double x(double value) const {
    const double power = std::log10(std::max(value, std::pow(10.0, low_)));
    return kLeft + kWidth * (power - low_) / (high_ - low_);
  }

 private:
  int low_ = 0, high_ = 1;
};

std::string text_at(double x, double y, const std::string& attributes, const std::string& text) {
  return concat("<text x=\"", number(x), "\" y=\"", number(y), "\" ", attributes, ">",
                escaped(text), "</text>\n");
}

std::string rectangle(double x, double y, double width, double height, const char* color) {
  return concat("<rect x=\"", number(x), "\" y=\"", number(y), "\" width=\"", number(width),
                "\" height=\"", number(height), "\" fill=\"", color, "\"/>\n");
}

std::string draw_axis(const Axis& axis, double height) {
  std::string out;
  for (int power = axis.low(); power <= axis.high(); ++power) {
    const double x = axis.x(std::pow(10.0, power));
    out += concat("<line x1=\"", number(x), "\" y1=\"46\" x2=\"", number(x), "\" y2=\"",
                  number(height - 16), "\" stroke=\"#e5e7eb\"/>\n");
    out += text_at(x, height - 4, "text-anchor=\"middle\"", number(std::pow(10.0, power)));
  }
  for (std::size_t i = 0; i < std::size(kBars); ++i) {
    const double x = kLeft + 150.0 * static_cast<double>(i);
    out += rectangle(x, 28, 10, 10, kBars[i].color);
    out += text_at(x + 14, 37, "", kBars[i].name);
  }
  return out;
}

}  // namespace

DomainsVerdict judge(const DomainsPair& pair) {
  DomainsVerdict verdict;
  verdict.idle = quantile(pair.idle, 0.5);
  verdict.same = quantile(pair.same, 0.5);
  verdict.separate = quantile(pair.separate, 0.5);
  for (const auto* values : {&pair.idle, &pair.same, &pair.separate})
    verdict.spread =
        std::max(verdict.spread, (quantile(*values, 0.75) - quantile(*values, 0.25)) / 2);
  verdict.effect = verdict.same - verdict.idle > 3 * verdict.spread;
  if (verdict.effect)
    verdict.removed = (verdict.same - verdict.separate) / (verdict.same - verdict.idle);
  return verdict;
}

std::string domains_svg(const DomainsData& data, const std::string& machine) {
  std::vector<DomainsVerdict> verdicts;
  for (const DomainsPair& pair : data.pairs) verdicts.push_back(judge(pair));
  const Axis axis(verdicts);
  const double height = kTop + kRow * static_cast<double>(data.pairs.size()) + 24;
  std::string out =
      concat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", number(kLeft + kWidth + 200),
             "\" height=\"", number(height), "\" font-family=\"sans-serif\" font-size=\"11\">\n",
             "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
  out += text_at(10, 18, "font-size=\"14\"", "Memory synchronization domains on " + machine);
  out += draw_axis(axis, height);
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    const DomainsPair& pair = data.pairs[i];
    const double y = kTop + kRow * static_cast<double>(i);
    out +=
        text_at(kLeft - 8, y + 9, "text-anchor=\"end\"", concat(pair.victim, " (", pair.unit, ")"));
    out += text_at(kLeft - 8, y + 21, "text-anchor=\"end\" fill=\"#6b7280\"",
                   "beside " + pair.aggressor);
    for (std::size_t j = 0; j < std::size(kBars); ++j) {
      const double value = verdicts[i].*kBars[j].value, top = y + kBar * static_cast<double>(j);
      out += rectangle(kLeft, top, std::max(axis.x(value) - kLeft, 1.0), kBar, kBars[j].color);
      out += text_at(axis.x(value) + 3, top + kBar, "font-size=\"8\"", number(value));
    }
    out += text_at(kLeft + kWidth + 60, y + 14, "",
                   verdicts[i].effect
                       ? concat("removed ", std::lround(100 * verdicts[i].removed), " %")
                       : std::string("no effect seen"));
  }
  return out + "</svg>\n";
}

}  // namespace tandem::bench
