// SPDX-License-Identifier: Apache-2.0
// All spans of all ranks on one time axis, in the Trace Event Format (JSON object with
// `traceEvents`, complete events, times in microseconds) that ui.perfetto.dev and chrome://tracing
// open: one process per rank, one thread per lane (steps, host, compute, comm).
#pragma once

#include <ostream>
#include <vector>

#include "runtime/waits/attribution.h"

namespace tandem::launch {

void write_trace(std::ostream& out, const std::vector<runtime::RankLog>& logs,
                 const runtime::Attribution& attribution);

}  // namespace tandem::launch
