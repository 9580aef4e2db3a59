// SPDX-License-Identifier: Apache-2.0
// The peer kernels between ranks that are contexts of one process on one GPU: what they cost but
// for the links. For work on the kernels where there is one GPU only.
#pragma once

#include "tests/bench/report.h"

namespace tandem::bench {

/// Adds the latency of all-reduce, and of the seam with residual and norm, of `ranks` ranks,
/// without early starts of kernels.
void bench_local_ranks(Report& report, int ranks);

}  // namespace tandem::bench
