// SPDX-License-Identifier: Apache-2.0
// Where the first requests of a steady state stand in their answers, so that later as many end in
// one second as in any other. Plain function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "launch/bench/workload.h"

namespace tandem::launch {

/// Of each of `first`, in the order of submission: how many tokens of its answer are still to be
/// given, 1 at least; the others are part of its prompt. Chosen so that when all prompts have been
/// computed, in steps of `step_tokens` rows of which up to `mixed_step_tokens` (0: all) in a step
/// that decodes too, what is left is spread evenly from nothing to a whole answer. Those who begin
/// first answer while the others' prompts are computed: they are given as much more.
std::vector<std::int32_t> steady_start(std::span<const BenchRequest> first,
                                       std::int32_t step_tokens, std::int32_t mixed_step_tokens);

}  // namespace tandem::launch
