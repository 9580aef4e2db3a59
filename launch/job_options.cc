// SPDX-License-Identifier: Apache-2.0
#include "launch/job_options.h"

#include <cmath>
#include <cstdlib>

#include "comm/socket.h"
#include "kernels/device/error.h"

namespace tandem::launch {
namespace {

double parse_seconds(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  TANDEM_REQUIRE(
      !text.empty() && *end == '\0' && value >= 0 && std::isfinite(value), "--step-timeout ", text,
      " is no number of seconds; write for example --step-timeout 60, or 0 for no limit");
  return value;
}

int parse_rank(const std::string& text) {
  if (text == "all") return -1;
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  TANDEM_REQUIRE(!text.empty() && *end == '\0' && value >= 0 && value < 1000000, "--log-rank ",
                 text, " is no rank; write for example --log-rank 1, or --log-rank all");
  return static_cast<int>(value);
}

using Setter = void (*)(JobOptions&, const std::string&);

/// Null when `name` is none of the job's options.
Setter setter_of(const std::string& name) {
  if (name == "--interface") return [](JobOptions& o, const std::string& v) { o.interfaces = v; };
  if (name == "--log-file") return [](JobOptions& o, const std::string& v) { o.log_file = v; };
  if (name == "--log-rank")
    return [](JobOptions& o, const std::string& v) { o.log_rank = parse_rank(v); };
  if (name == "--step-timeout")
    return [](JobOptions& o, const std::string& v) { o.step_timeout_s = parse_seconds(v); };
  if (name == "--cpu-bind")
    return [](JobOptions& o, const std::string& v) {
      TANDEM_REQUIRE(v == "auto" || v == "keep", "--cpu-bind ", v,
                     " is not known; use auto or keep");
      o.keep_binding = v == "keep";
    };
  return nullptr;
}

}  // namespace

JobOptions take_job_options(std::vector<std::string>& words) {
  JobOptions options;
  bool log_rank_given = false;
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--") {
      rest.insert(rest.end(), words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
      break;
    }
    const auto equals = words[i].find('=');
    const std::string name = words[i].substr(0, equals);
    const Setter set = setter_of(name);
    if (set == nullptr) {
      rest.push_back(words[i]);
      continue;
    }
    TANDEM_REQUIRE(equals != std::string::npos || i + 1 < words.size(), name,
                   " needs a value; see tandem --help");
    log_rank_given |= name == "--log-rank";
    set(options, equals != std::string::npos ? words[i].substr(equals + 1) : words[++i]);
  }
  words = std::move(rest);
  if (!log_rank_given && options.log_file.find("%r") != std::string::npos) options.log_rank = -1;
  return options;
}

void require_interface(const std::string& interfaces, const std::string& host) {
  if (interfaces.empty()) return;
  std::string there;
  for (const comm::NetworkInterface& item : comm::network_interfaces()) {
    if (comm::names_interface(interfaces, item.name)) return;
    there += concat(there.empty() ? "" : ", ", item.name);
  }
  throw ConfigError(concat("--interface ", interfaces, ": host ", host,
                           " has no such network; use one of: ", there));
}

const char* job_options_help() {
  return "options of every command:\n"
         "  --interface NAMES     network between the hosts, for example eth0 or eth0,ib0\n"
         "  --step-timeout S      seconds without progress in a step until the job ends (15; 0: "
         "never)\n"
         "  --cpu-bind auto|keep  auto divides the cores over the ranks, keep leaves the "
         "launcher's "
         "binding\n"
         "  --log-rank N|all      whose log lines are shown (0); warnings and errors always are\n"
         "  --log-file FILE       log lines go to FILE; %r in it becomes the rank, and every rank "
         "logs\n";
}

}  // namespace tandem::launch
