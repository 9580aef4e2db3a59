// SPDX-License-Identifier: Apache-2.0
#include "kernels/attend.h"

#include "kernels/cuda/attend_kernels.h"
#include "kernels/cuda/attend_prefill.h"
#include "kernels/device/cuda/stamps.h"
#include "kernels/device/dtype.h"
#include "kernels/device/error.h"

namespace tandem::kernels {

template <typename T>
void attend(Context<Cuda>& ctx, const AttendArgs<T, Cuda>& args) {
  const std::int32_t decode = args.step->num_decode, prefill = args.step->num_tokens - decode;
  constexpr bool kHasMma = sizeof(T) == 2;
  if (decode > 0) {
    bool done = false;
    if constexpr (kHasMma) done = attend_decode_rows(ctx, args);
    if (!done) attend_any(ctx, args, 0, decode);
  }
  if (prefill > 0) {
    bool done = false;
    if constexpr (kHasMma) {
      if (attend_prefill_supported(args) && !ctx.compute().capturing()) {
        attend_prefill(ctx, args,
                       ctx.recorder() == nullptr ? nullptr : ctx.recorder()->tile_waits());
        done = true;
      } else {
        done = attend_prefill_mma(ctx, args);
      }
    }
    if (!done) attend_any(ctx, args, decode, prefill);
  }
}

std::string prefill_attention_fallback(DType type, std::int64_t head_dim, float softcap) {
  const std::string kind = concat("prefill attention of ", name(type), " with head size ", head_dim,
                                  softcap > 0 ? " and capped scores" : "");
  if (type == DType::kF32) return kind + " runs on the plain float kernel, which is slow";
  const bool mma = head_dim == 80 || head_dim == 96 || head_dim == 256;
  if (head_dim != 64 && head_dim != 128)
    return concat(kind, mma ? " runs on the mma.sync kernel" : " runs on the plain float kernel",
                  "; the fast one is for head sizes 64 and 128");
  return softcap > 0 ? kind + " runs on the mma.sync kernel; the fast one has no cap" : "";
}

template void attend<float>(Context<Cuda>&, const AttendArgs<float, Cuda>&);
template void attend<BFloat16>(Context<Cuda>&, const AttendArgs<BFloat16, Cuda>&);
template void attend<Float16>(Context<Cuda>&, const AttendArgs<Float16, Cuda>&);

}  // namespace tandem::kernels
