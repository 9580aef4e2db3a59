// SPDX-License-Identifier: Apache-2.0
#include "kernels/head.h"

#include <cmath>

#include "kernels/device/cpu/context.h"
#include "kernels/gather_rows.h"

namespace tandem::kernels {

template <typename T>
void head(Context<Cpu>& ctx, const HeadArgs<T, Cpu>& args) {
  TensorView<const T, Cpu> x = args.normed;
  if (args.samples.rows != nullptr) {
    x = {args.gathered.data, args.samples.num_samples, args.normed.cols};
    gather_rows<T>(ctx, {args.samples.rows, args.normed,
                         args.gathered.slice_rows(0, args.samples.num_samples)});
  }
  matmul<T, float>(ctx, x, *args.weight, args.logits);
  if (args.scale == 1.0f && args.softcap == 0.0f) return;
#pragma omp parallel for
  for (std::int64_t i = 0; i < args.samples.num_samples; ++i) {
    float* logits = args.logits.row(i);
    for (std::int64_t j = 0; j < args.logits.cols; ++j) {
      const float logit = logits[j] * args.scale;
      logits[j] = args.softcap > 0 ? args.softcap * std::tanh(logit / args.softcap) : logit;
    }
  }
}

template <typename T>
void head_best(Context<Cpu>& ctx, const HeadArgs<T, Cpu>& args, const ShardArgs<Cpu>& shard,
               TokenKey* best) {
  head(ctx, args);
  best_of_shard(ctx, shard, best);
}

#define TANDEM_INSTANTIATE(T)                                 \
  template void head(Context<Cpu>&, const HeadArgs<T, Cpu>&); \
  template void head_best(Context<Cpu>&, const HeadArgs<T, Cpu>&, const ShardArgs<Cpu>&, TokenKey*);
TANDEM_INSTANTIATE(float)
TANDEM_INSTANTIATE(BFloat16)
TANDEM_INSTANTIATE(Float16)
#undef TANDEM_INSTANTIATE

}  // namespace tandem::kernels
