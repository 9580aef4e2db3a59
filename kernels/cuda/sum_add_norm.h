// SPDX-License-Identifier: Apache-2.0
// `add_norm` whose branch is a sum over ranks of matrices that are all in this GPU's memory: what
// is left of an all-reduce when copy engines have moved the rows. Asynchronous on any stream.
#pragma once

#include <array>

#include "kernels/add_norm.h"
#include "kernels/cuda/peer_view.h"
#include "kernels/device/cuda/context.h"

namespace tandem::kernels {

/// Where the ranks' parts of a sum lie, each `[rows, hidden]`, contiguous and 16-byte aligned.
template <typename T>
struct SumParts {
  std::array<const T*, kMaxPeers> parts{};
  int size = 0;
};

/// Whether `sum_add_norm` takes rows of this width and these addresses.
template <typename T>
bool can_sum_add_norm(const AddNormArgs<T, Cuda>& args);

/// branch = parts[0] + parts[1] + ..., in float, rounded once to T; then as `add_norm`, with
/// `args.branch` ignored and the rows of `args.residual`.
template <typename T>
void sum_add_norm(Context<Cuda>& ctx, Stream<Cuda>& stream, const SumParts<T>& parts,
                  const AddNormArgs<T, Cuda>& args);

}  // namespace tandem::kernels
