// SPDX-License-Identifier: Apache-2.0
// The report of waits for people: one table per kind of step, the worst row first, with what would
// make it smaller; and what changed between two reports. Plain functions.
#pragma once

#include <string>

#include "launch/waits/report.h"

namespace tandem::launch {

std::string waits_table(const WaitsReport& report);

/// ConfigError when the two have no kind of step in common.
std::string compare_waits(const WaitsReport& before, const WaitsReport& after);

/// A row's name for people.
std::string row_title(const std::string& row);

/// What would make a row smaller on ranks like these, in steps of `kind` ("decode", "prefill");
/// empty: nothing to say.
std::string advice(const WaitsReport& report, const std::string& kind, const std::string& row,
                   const std::string& cause);

}  // namespace tandem::launch
