// SPDX-License-Identifier: Apache-2.0
// Options that belong to the job and not to a command: every command takes them, anywhere among
// its words. Plain values, equal on all ranks.
#pragma once

#include <string>
#include <vector>

namespace tandem::launch {

struct JobOptions {
  std::string interfaces;      ///< --interface: network between the hosts, "eth0" or "eth0,ib0".
  double step_timeout_s = 15;  ///< --step-timeout: longest stage of a step; 0: for ever.
  int log_rank = 0;            ///< --log-rank: whose info lines are shown; -1: all (the default
                               ///< when every rank has a file of its own).
  std::string log_file;        ///< --log-file: lines go there; %r becomes the rank.
  bool keep_binding = false;   ///< --cpu-bind=keep: leave the launcher's CPU binding alone.
};

/// Takes the job's options out of `words` ("--name value" or "--name=value"); words after "--"
/// stay. ConfigError for a wrong value.
JobOptions take_job_options(std::vector<std::string>& words);

/// ConfigError when `interfaces` names no network of this host.
void require_interface(const std::string& interfaces, const std::string& host);

/// The options' part of `tandem --help`.
const char* job_options_help();

}  // namespace tandem::launch
