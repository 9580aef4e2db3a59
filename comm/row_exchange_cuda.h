// SPDX-License-Identifier: Apache-2.0
// The exchange of rows on CUDA ranks of one host. Copy engines move the rows over peer memory and
// the driver's stream-ordered writes and waits tell that they have come, so the exchange takes no
// SM from the matmuls beside it; only the norm of the rank's own rows is a kernel, on the comm
// stream. Owns the landing place of the others' partial sums and the mappings of their activations.
// Teardown is collective and comes before the activations go.
#pragma once

#include <memory>
#include <string>

#include "comm/peer_memory.h"
#include "comm/row_exchange.h"

namespace tandem::comm {

/// Activations `[rows, cols]` of this rank that the others write into.
struct ExchangedRows {
  std::byte *residual = nullptr, *normed = nullptr;  ///< Base addresses of allocations.
  std::int64_t rows = 0, row_bytes = 0;
};

template <>
class RowExchange<Cuda> {
 public:
  /// Collective. Null on all ranks when one of them cannot map the others' memory or a test
  /// exchange gave wrong rows; `why` says so.
  static std::unique_ptr<RowExchange> connect(Context<Cuda>& ctx, ControlPlane& control,
                                              const ExchangedRows& rows, std::string& why);
  RowExchange(const RowExchange&) = delete;
  RowExchange& operator=(const RowExchange&) = delete;
  ~RowExchange();

  /// Bytes of the landing place for activations of `rows` rows.
  static std::int64_t staging_bytes(std::int64_t rows, std::int64_t row_bytes, int ranks);

  template <typename T>
  bool takes(const kernels::AddNormArgs<T, Cuda>& args) const;

  /// As on the CPU, on the comm stream: what it reads must be ordered before by the caller.
  template <typename T>
  void reduce_add_norm(Context<Cuda>& ctx, TensorView<T, Cuda> partial,
                       const kernels::AddNormArgs<T, Cuda>& args, const ExchangeParts& parts);

  /// Halves of exchanges that this rank's device has begun, from what it told its neighbour. Waits
  /// for the copy of two words. One thread at a time.
  std::uint32_t exchanges() const;

 private:
  enum class Phase : std::int64_t { kScattered, kGathered };
  static constexpr int kPhases = 2;

  RowExchange(Context<Cuda>& ctx, ControlPlane& control, const ExchangedRows& rows,
              SharedMapping staging, SharedMapping residuals, SharedMapping normeds);

  int rank() const { return control_.rank(); }
  int size() const { return control_.size(); }
  std::byte* slot(int at, int source) const;
  void copy(std::byte* to, const std::byte* from, std::int64_t size_bytes);
  void tell(Phase phase);
  void wait(Phase phase);
  void scatter(const std::byte* partial, std::int64_t rows);
  void gather(const SharedMapping& to, const std::byte* base, std::int64_t first,
              std::int64_t rows);
  bool works(Context<Cuda>& ctx);

  ControlPlane& control_;
  Stream<Cuda>& stream_;
  ExchangedRows rows_;
  std::uint32_t calls_ = 0;
  SharedMapping staging_, residuals_, normeds_;
  std::unique_ptr<DeviceReader> reader_;
};

}  // namespace tandem::comm
