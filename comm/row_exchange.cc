// SPDX-License-Identifier: Apache-2.0
#include "comm/row_exchange.h"

#include <algorithm>

#include "kernels/device/cpu/context.h"
#include "kernels/device/dtype.h"
#include "kernels/op_work.h"

namespace tandem::comm {

template <typename T>
void RowExchange<Cpu>::reduce_add_norm(Context<Cpu>& ctx, TensorView<T, Cpu> partial,
                                       const kernels::AddNormArgs<T, Cpu>& args,
                                       const ExchangeParts& parts) {
  if (parts.communicate)
    communicator_.all_reduce_sum(ctx, Span<T, Cpu>{partial.data, partial.rows * partial.cols});
  if (parts.compute) {
    const RowRange own = rows_of_rank(partial.rows, communicator_.rank(), communicator_.size());
    auto mine = rows_of(args, own);
    mine.branch = {partial.row(own.begin), own.size(), partial.cols};
    const OpTimer timer(ctx, Activity::kAddNorm, [&] { return kernels::add_norm_work(mine); });
    kernels::add_norm(ctx, mine);
  }
  if (!parts.communicate) return;
  gather_rows(ctx, args.normed);
  if (parts.whole_residual) gather_rows(ctx, args.residual);
}

/// Every rank's own rows to all.
template <typename T>
void RowExchange<Cpu>::gather_rows(Context<Cpu>& ctx, const TensorView<T, Cpu>& rows) {
  TANDEM_ASSERT(rows.stride == rows.cols, "rows that are exchanged are contiguous");
  const std::int64_t row_bytes = rows.cols * static_cast<std::int64_t>(sizeof(T));
  std::vector<std::int64_t> counts_bytes;
  for (int r = 0; r < communicator_.size(); ++r)
    counts_bytes.push_back(rows_of_rank(rows.rows, r, communicator_.size()).size() * row_bytes);
  const RowRange own = rows_of_rank(rows.rows, communicator_.rank(), communicator_.size());
  // MPI allows no overlap of what is sent with what is received.
  staging_.resize(static_cast<std::size_t>(own.size() * row_bytes));
  std::copy_n(reinterpret_cast<const std::byte*>(rows.row(own.begin)), staging_.size(),
              staging_.begin());
  communicator_.all_gather_v(ctx, staging_.data(), rows.data, counts_bytes);
}

template void RowExchange<Cpu>::reduce_add_norm(Context<Cpu>&, TensorView<float, Cpu>,
                                                const kernels::AddNormArgs<float, Cpu>&,
                                                const ExchangeParts&);
template void RowExchange<Cpu>::reduce_add_norm(Context<Cpu>&, TensorView<BFloat16, Cpu>,
                                                const kernels::AddNormArgs<BFloat16, Cpu>&,
                                                const ExchangeParts&);

}  // namespace tandem::comm
