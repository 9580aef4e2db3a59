// SPDX-License-Identifier: Apache-2.0
// One line on stderr that says how far a long run is: rewritten in place on a terminal, a new line
// every ten seconds elsewhere (and under mpirun, whose pipes look like terminals). One thread.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

namespace tandem::launch {

class ProgressLine {
 public:
  enum class Style { kOff, kLines, kBar };

  static Style automatic(bool under_launcher) {
    return !under_launcher && ::isatty(STDERR_FILENO) == 1 ? Style::kBar : Style::kLines;
  }

  explicit ProgressLine(Style style) : style_(style) { due_ += interval(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine() { finish(); }

  /// Cheap when nothing is due. `text` makes the line.
  template <typename Text>
  void update(const Text& text) {
    const auto now = Clock::now();
    if (style_ == Style::kOff || now < due_) return;
    due_ = now + interval();
    std::fprintf(stderr, style_ == Style::kBar ? "\r\033[K%s" : "%s\n", text().c_str());
    std::fflush(stderr);
    shown_ = true;
  }

  /// Removes the line from a terminal.
  void finish() {
    if (shown_ && style_ == Style::kBar) std::fputs("\r\033[K", stderr);
    shown_ = false;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::duration interval() const {
    return style_ == Style::kBar ? Clock::duration(std::chrono::milliseconds(200))
                                 : Clock::duration(std::chrono::seconds(10));
  }

  Style style_;
  Clock::time_point due_ = Clock::now();
  bool shown_ = false;
};

}  // namespace tandem::launch
