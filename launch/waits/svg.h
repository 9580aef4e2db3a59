// SPDX-License-Identifier: Apache-2.0
// The report of waits as a picture: for each kind of step one stacked bar per rank, on a common
// time axis. Self-contained SVG.
#pragma once

#include <string>

#include "launch/waits/report.h"

namespace tandem::launch {

std::string waits_svg(const WaitsReport& report);

}  // namespace tandem::launch
