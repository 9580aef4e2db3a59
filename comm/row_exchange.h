// SPDX-License-Identifier: Apache-2.0
// The sum over ranks and the norm behind a row-parallel matmul, beside the compute stream and dealt
// by rows: every rank sums and norms its own rows and gives the normed rows to all. Half the norms'
// work on two ranks, and what is exchanged is what an all-reduce exchanges anyway: sequence
// parallelism (Korthikanti et al. 2022, arXiv 2205.05198). The residual stays with its owner until
// a call asks for the whole. Made collectively; used by the step thread, the same calls on all
// ranks.
#pragma once

#include <vector>

#include "comm/communicator.h"

namespace tandem::comm {

/// What a call does.
struct ExchangeParts {
  bool compute = true;          ///< Sums and norms; false only in trials.
  bool communicate = true;      ///< Rows move; false only in trials.
  bool whole_residual = false;  ///< Every rank gets all rows of the residual, too.
};

/// Rows [begin, end) of a matrix of `rows`.
struct RowRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};
inline RowRange rows_of_rank(std::int64_t rows, int rank, int ranks) {
  return {rows * rank / ranks, rows * (rank + 1) / ranks};
}

template <typename T, Device D>
kernels::AddNormArgs<T, D> rows_of(kernels::AddNormArgs<T, D> args, const RowRange& range) {
  args.residual = args.residual.slice_rows(range.begin, range.size());
  args.normed = args.normed.slice_rows(range.begin, range.size());
  return args;
}

template <Device D>
class RowExchange;

/// Synchronous, in its place.
template <>
class RowExchange<Cpu> {
 public:
  explicit RowExchange(Communicator<Cpu>& communicator) : communicator_(communicator) {}

  /// Whether `reduce_add_norm` takes this message; equal on all ranks.
  template <typename T>
  bool takes(const kernels::AddNormArgs<T, Cpu>& args) const {
    return args.residual.rows >= communicator_.size();
  }

  /// Sums `partial` `[rows, hidden]` over ranks, then `add_norm` with that branch: `args.normed` is
  /// whole on every rank, `args.residual` is right in the rank's own rows (`rows_of_rank`) if it
  /// was before. `partial` is scratch afterwards.
  template <typename T>
  void reduce_add_norm(Context<Cpu>& ctx, TensorView<T, Cpu> partial,
                       const kernels::AddNormArgs<T, Cpu>& args, const ExchangeParts& parts);

  /// Halves of exchanges that a device has begun on its own.
  std::uint32_t exchanges() const { return 0; }

 private:
  template <typename T>
  void gather_rows(Context<Cpu>& ctx, const TensorView<T, Cpu>& rows);

  Communicator<Cpu>& communicator_;
  std::vector<std::byte> staging_;
};

}  // namespace tandem::comm
