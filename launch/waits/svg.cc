// SPDX-License-Identifier: Apache-2.0
#include "launch/waits/svg.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "kernels/device/error.h"
#include "launch/waits/table.h"

namespace tandem::launch {
namespace {

constexpr int kLeft = 150, kWidth = 720, kRight = 40, kBar = 26, kGap = 8;
constexpr int kLegendTop = 44, kLegendRow = 20, kLegendColumns = 3;

struct RowColor {
  const char* fill;
  bool dark;
};
/// By WaitRow. Compute in blues, communication in oranges, the host in greens, the rest grey or
/// red; told apart by lightness too.
constexpr RowColor kColors[runtime::kNumWaitRows] = {
    {"#1e3a8a", true},  {"#60a5fa", false}, {"#0e7490", true}, {"#67e8f9", false},
    {"#b45309", true},  {"#fbbf24", false}, {"#a21caf", true}, {"#0f766e", true},
    {"#4ade80", false}, {"#d1d5db", false}, {"#dc2626", true}};

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

std::string text_at(double x, double y, const std::string& style, const std::string& text) {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" " + style + ">" + escaped(text) +
         "</text>\n";
}

std::string box(double x, double y, double width, double height, const std::string& color,
                const std::string& title) {
  return "<rect x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(width) +
         "\" height=\"" + number(height) + "\" fill=\"" + color + "\"><title>" + escaped(title) +
         "</title></rect>\n";
}

std::string time_text(double us) {
  char text[32];
  if (us == 0) return "0";
  const bool seconds = us >= 1e6, milliseconds = !seconds && us >= 1e3;
  std::snprintf(text, sizeof text, "%.3g %s",
                us / (seconds        ? 1e6
                      : milliseconds ? 1e3
                                     : 1),
                seconds        ? "s"
                : milliseconds ? "ms"
                               : "us");
  return text;
}

/// A round distance of axis ticks: 1, 2 or 5 times a power of ten, four to nine of them.
double tick_us(double longest_us) {
  const double power = std::pow(10.0, std::floor(std::log10(longest_us / 4)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (longest_us / (factor * power) <= 8) return factor * power;
  return 10 * power;
}

class Drawing {
 public:
  explicit Drawing(const WaitsReport& report) : report_(report) {}

  std::string draw() {
    body_ += text_at(16, 26, "font-size=\"16\" font-weight=\"bold\"",
                     concat("Where ", report_.model, " waits: ", report_.devices.size(),
                            report_.devices.size() == 1 ? " rank, " : " ranks, ",
                            report_.devices.empty() ? "" : report_.devices.front()));
    legend();
    for (const WaitPhase& phase : report_.phases) draw_phase(phase);
    return concat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", kLeft + kWidth + kRight,
                  "\" height=\"", number(y_ + 8), "\" viewBox=\"0 0 ", kLeft + kWidth + kRight, " ",
                  number(y_ + 8),
                  "\" font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#111827\">\n"
                  "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
                  body_, "</svg>\n");
  }

 private:
  void legend() {
    for (int r = 0; r < runtime::kNumWaitRows; ++r) {
      const double x = 16 + r % kLegendColumns * 230;
      const double y = kLegendTop + r / kLegendColumns * kLegendRow;
      const std::string title = row_title(key(static_cast<runtime::WaitRow>(r)));
      body_ += box(x, y, 12, 12, kColors[r].fill, title);
      body_ += text_at(x + 18, y + 10.5, "", title);
    }
    y_ = kLegendTop + (runtime::kNumWaitRows + kLegendColumns - 1) / kLegendColumns * kLegendRow +
         12;
  }

  void draw_phase(const WaitPhase& phase) {
    double longest = 1;
    for (const RankWaits& rank : phase.ranks) longest = std::max(longest, rank.step_mean_us);
    body_ += text_at(
        16, y_ + 14, "font-size=\"13\" font-weight=\"bold\"",
        concat(phase.kind, ": mean of ", phase.steps, phase.steps == 1 ? " step" : " steps"));
    y_ += 24;
    const double bottom = y_ + static_cast<double>(phase.ranks.size()) * (kBar + kGap);
    const double scale = kWidth / longest;
    for (double us = 0; us <= longest * 1.001; us += tick_us(longest)) {
      const double x = kLeft + us * scale;
      body_ += concat("<line x1=\"", number(x), "\" x2=\"", number(x), "\" y1=\"", number(y_ - 2),
                      "\" y2=\"", number(bottom), "\" stroke=\"#e5e7eb\"/>\n");
      body_ += text_at(x, bottom + 14, "text-anchor=\"middle\" fill=\"#4b5563\"", time_text(us));
    }
    for (std::size_t r = 0; r < phase.ranks.size(); ++r) draw_rank(phase.ranks[r], r, scale);
    y_ = bottom + 32;
  }

  void draw_rank(const RankWaits& rank, std::size_t number_of_rank, double scale) {
    body_ += text_at(kLeft - 8, y_ + kBar / 2.0 + 4, "text-anchor=\"end\"",
                     concat("rank ", number_of_rank));
    double x = kLeft;
    for (std::size_t r = 0; r < rank.rows.size(); ++r) {
      const double width = rank.rows[r].mean_us * scale;
      if (width <= 0) continue;
      const int share = static_cast<int>(100 * rank.rows[r].mean_us / rank.step_mean_us + 0.5);
      const std::string title = row_title(rank.rows[r].row);
      body_ += box(x, y_, width, kBar, kColors[r].fill,
                   concat(title, ": ", time_text(rank.rows[r].mean_us), ", ", share, " %"));
      if (width > 34)
        body_ += text_at(
            x + width / 2, y_ + kBar / 2.0 + 4,
            kColors[r].dark ? "text-anchor=\"middle\" fill=\"white\"" : "text-anchor=\"middle\"",
            concat(share, " %"));
      x += width;
    }
    y_ += kBar + kGap;
  }

  const WaitsReport& report_;
  std::string body_;
  double y_ = 0;
};

}  // namespace

std::string waits_svg(const WaitsReport& report) { return Drawing(report).draw(); }

}  // namespace tandem::launch
