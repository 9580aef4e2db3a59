// SPDX-License-Identifier: Apache-2.0
// One log line format for all ranks: `12:34:56.789 host rank 1/2 warn | text`, on stderr.
// By default only rank 0 prints info lines; warnings and errors are printed by every rank.
// Each line is written with one call, so lines of ranks that share a terminal do not mix.
// Thread-safe. Configured once by `launch` before any other thread starts.
#pragma once

#include <string>

#include "kernels/device/error.h"

namespace tandem {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

struct LogConfig {
  int rank = 0;
  int size = 1;
  std::string host;
  LogLevel level = LogLevel::kInfo;
  int info_rank = 0;  ///< Rank whose info lines are printed; -1 prints all.
  std::string file;   ///< Empty: stderr. `%r` becomes the rank.
};

void configure_log(const LogConfig& config);
void log_line(LogLevel level, const std::string& text);

template <typename... Parts>
void log_debug(const Parts&... parts) {
  log_line(LogLevel::kDebug, concat(parts...));
}
template <typename... Parts>
void log_info(const Parts&... parts) {
  log_line(LogLevel::kInfo, concat(parts...));
}
template <typename... Parts>
void log_warn(const Parts&... parts) {
  log_line(LogLevel::kWarn, concat(parts...));
}
template <typename... Parts>
void log_error(const Parts&... parts) {
  log_line(LogLevel::kError, concat(parts...));
}

}  // namespace tandem
