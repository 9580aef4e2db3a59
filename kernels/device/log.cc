// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <mutex>

namespace tandem {
namespace {

// The one process-wide state of the project: where log lines go. It is written once at start.
struct LogState {
  LogConfig config;
  int descriptor = STDERR_FILENO;
  std::mutex mutex;
};

LogState& state() {
  static LogState instance;
  return instance;
}

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarn:
      return "warn";
    case LogLevel::kError:
      return "error";
  }
  return "?";
}

std::string time_of_day() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto millis =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char text[32];
  std::snprintf(text, sizeof text, "%02d:%02d:%02d.%03d", parts.tm_hour, parts.tm_min, parts.tm_sec,
                static_cast<int>(millis));
  return text;
}

}  // namespace

void configure_log(const LogConfig& config) {
  LogState& log = state();
  const std::scoped_lock lock(log.mutex);
  log.config = config;
  if (config.file.empty()) return;
  std::string path = config.file;
  if (const auto at = path.find("%r"); at != std::string::npos)
    path.replace(at, 2, std::to_string(config.rank));
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  TANDEM_REQUIRE(descriptor >= 0, "--log-file: cannot write ", path, "; name a writable path");
  log.descriptor = descriptor;
}

void log_line(LogLevel level, const std::string& text) {
  LogState& log = state();
  const std::scoped_lock lock(log.mutex);
  const LogConfig& config = log.config;
  if (level < config.level) return;
  if (level <= LogLevel::kInfo && config.info_rank >= 0 && config.rank != config.info_rank) return;
  std::string line = time_of_day();
  if (!config.host.empty()) line += " " + config.host;
  if (config.size > 1) line += concat(" rank ", config.rank, "/", config.size);
  line += concat(" ", level_name(level), " | ", text, "\n");
  [[maybe_unused]] const auto written = ::write(log.descriptor, line.data(), line.size());
}

}  // namespace tandem
