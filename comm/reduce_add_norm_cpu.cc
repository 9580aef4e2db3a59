// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.h"
#include "kernels/device/cpu/context.h"
#include "kernels/device/dtype.h"
#include "kernels/op_work.h"

namespace tandem::comm {

template <typename T>
void Communicator<Cpu>::reduce_add_norm(Context<Cpu>& ctx, TensorView<T, Cpu> partial,
                                        const kernels::AddNormArgs<T, Cpu>& args) {
  TANDEM_ASSERT(partial.stride == partial.cols && args.branch.data == partial.data,
                "the partial sum is contiguous and is the branch");
  all_reduce_sum(ctx, Span<T, Cpu>{partial.data, partial.rows * partial.cols});
  const OpTimer timer(ctx, Activity::kAddNorm, [&] { return kernels::add_norm_work(args); });
  kernels::add_norm(ctx, args);
}

template void Communicator<Cpu>::reduce_add_norm(Context<Cpu>&, TensorView<float, Cpu>,
                                                 const kernels::AddNormArgs<float, Cpu>&);
template void Communicator<Cpu>::reduce_add_norm(Context<Cpu>&, TensorView<BFloat16, Cpu>,
                                                 const kernels::AddNormArgs<BFloat16, Cpu>&);

}  // namespace tandem::comm
