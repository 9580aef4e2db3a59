// SPDX-License-Identifier: Apache-2.0
// The attention kernels that `attend` chooses from. Those that return bool have a kernel for some
// shapes only: false means that nothing was enqueued. All of them write zeros for inert rows.
#pragma once

#include <string>

#include "kernels/attend.h"
#include "kernels/device/cuda/context.h"
#include "kernels/device/dtype.h"

namespace tandem::kernels {

/// Rows [0, num_decode): split-KV with mma. Head dims 64, 80, 96, 128, 256; 2-byte types.
template <typename T>
bool attend_decode_rows(Context<Cuda>& ctx, const AttendArgs<T, Cuda>& args);

/// The prefill segments with mma.sync. Head dims 64, 80, 96, 128, 256; 2-byte types.
template <typename T>
bool attend_prefill_mma(Context<Cuda>& ctx, const AttendArgs<T, Cuda>& args);

/// Rows [first_row, first_row + num_rows) of any head dim up to 512 and any type, each by itself.
template <typename T>
void attend_any(Context<Cuda>& ctx, const AttendArgs<T, Cuda>& args, std::int32_t first_row,
                std::int32_t num_rows);

/// One line for the log when prefill of this model has no TMA and wgmma kernel; empty when it has.
std::string prefill_attention_fallback(DType type, std::int64_t head_dim, float softcap);

}  // namespace tandem::kernels
