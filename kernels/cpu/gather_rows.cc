// SPDX-License-Identifier: Apache-2.0
#include "kernels/gather_rows.h"

#include <algorithm>

namespace tandem::kernels {

template <typename T>
void gather_rows(Context<Cpu>&, const GatherRowsArgs<T, Cpu>& args) {
  for (std::int64_t i = 0; i < args.out.rows; ++i) {
    const T* row = args.from.row(args.rows[i]);
    std::copy(row, row + args.out.cols, args.out.row(i));
  }
}

template void gather_rows(Context<Cpu>&, const GatherRowsArgs<float, Cpu>&);
template void gather_rows(Context<Cpu>&, const GatherRowsArgs<BFloat16, Cpu>&);
template void gather_rows(Context<Cpu>&, const GatherRowsArgs<Float16, Cpu>&);

}  // namespace tandem::kernels
