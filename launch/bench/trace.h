// SPDX-License-Identifier: Apache-2.0
// Files of requests: traces of lengths and times, and texts. Every fault names file and line.
#pragma once

#include <string>
#include <vector>

#include "launch/bench/workload.h"

namespace tandem::launch {

inline constexpr std::int32_t kBlockTokens = 512;  ///< Of a Mooncake hash id.

/// `azure:FILE`: CSV of TIMESTAMP,ContextTokens,GeneratedTokens (Azure Public Dataset, 2023).
/// `mooncake:FILE`: JSON lines of timestamp (ms), input_length, output_length, hash_ids (FAST '25).
/// In the order of arrival.
std::vector<BenchRequest> read_trace(const std::string& source);

/// `kind` sharegpt: conversations, the first message is the prompt. `kind` custom: {"prompt"} with
/// "output_tokens" or else `output` tokens.
std::vector<BenchRequest> read_texts(const std::string& kind, const std::string& path,
                                     std::int32_t output);

}  // namespace tandem::launch
