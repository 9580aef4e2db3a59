// SPDX-License-Identifier: Apache-2.0
// `doctor --rates`: how fast this job's ranks multiply, attend and talk, for `tandem plan`. All
// ranks work at once, as in a real job. Collective.
#pragma once

#include "launch/command.h"
#include "launch/placement.h"
#include "launch/plan/rates.h"

namespace tandem::launch {

/// CPU ranks, `threads` threads each.
DeviceRates measure_cpu_rates(Ranks& ranks, int threads);

/// To a file that `tandem plan --doctor` reads: the rates, the machine and the commit.
void write_rates(const std::string& path, const DeviceRates& rates);

/// For people: a few lines.
std::string rates_text(const DeviceRates& rates);

}  // namespace tandem::launch
