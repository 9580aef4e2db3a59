// SPDX-License-Identifier: Apache-2.0
// Judges the facts of all ranks: plain functions of plain data.
#pragma once

#include <vector>

#include "launch/doctor_check.h"
#include "launch/host_facts.h"

namespace tandem::launch {

/// One check per topic; ranks and hosts that differ are named. `facts` [ranks].
std::vector<Check> check_hosts(const std::vector<HostFacts>& facts, bool want_cuda);

/// Measured bandwidth against what the link should give: yellow below 30 %. `expected` 0: no
/// judgement. `link` is words for people: "shared memory", "ethernet".
Check check_bandwidth(const std::vector<CollectiveRow>& rows, const std::string& link,
                      double expected_gbyte_per_s);

}  // namespace tandem::launch
