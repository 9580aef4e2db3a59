// SPDX-License-Identifier: Apache-2.0
#include "comm/row_exchange_cuda.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "kernels/cuda/sum_add_norm.h"
#include "kernels/device/cuda/check.h"
#include "kernels/device/cuda/driver.h"
#include "kernels/device/error.h"
#include "kernels/device/log.h"

namespace tandem::comm {
namespace {

/// Flags [phase, source] before the landing places.
constexpr std::int64_t kFlagBytes = 4096;
constexpr std::chrono::seconds kTestLimit{30};

/// Rows of one landing place. Halves of a step are cut at tiles: a little more than half.
std::int64_t slot_rows(std::int64_t rows, int ranks) {
  constexpr std::int64_t kCutSlack = 128;
  return (rows / 2 + kCutSlack) / ranks + 1;
}

CUdeviceptr address(const std::byte* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace

std::int64_t RowExchange<Cuda>::staging_bytes(std::int64_t rows, std::int64_t row_bytes,
                                              int ranks) {
  return kFlagBytes + ranks * slot_rows(rows, ranks) * row_bytes;
}

std::unique_ptr<RowExchange<Cuda>> RowExchange<Cuda>::connect(Context<Cuda>& ctx,
                                                              ControlPlane& control,
                                                              const ExchangedRows& rows,
                                                              std::string& why) {
  if (control.size() > kernels::kMaxPeers) {
    why = concat("there are more than ", kernels::kMaxPeers, " ranks");
    return nullptr;
  }
  auto staging =
      map_over_ipc(control, staging_bytes(rows.rows, rows.row_bytes, control.size()), why);
  if (!staging) return nullptr;
  auto residuals = share_over_ipc(control, rows.residual, why);
  if (!residuals) return nullptr;
  auto normeds = share_over_ipc(control, rows.normed, why);
  if (!normeds) return nullptr;
  std::unique_ptr<RowExchange> exchange(new RowExchange(
      ctx, control, rows, std::move(*staging), std::move(*residuals), std::move(*normeds)));
  control.barrier();
  if (exchange->works(ctx)) return exchange;
  why = "a test exchange gave wrong rows";
  return nullptr;
}

RowExchange<Cuda>::RowExchange(Context<Cuda>& ctx, ControlPlane& control, const ExchangedRows& rows,
                               SharedMapping staging, SharedMapping residuals,
                               SharedMapping normeds)
    : control_(control),
      stream_(ctx.comm()),
      rows_(rows),
      staging_(std::move(staging)),
      residuals_(std::move(residuals)),
      normeds_(std::move(normeds)),
      reader_(std::make_unique<DeviceReader>(ctx.device(), kPhases)) {}

RowExchange<Cuda>::~RowExchange() {
  // A peer may still be writing here. After a failure nobody is waited for.
  if (std::uncaught_exceptions() > 0) return;
  try {
    stream_.synchronize();
    control_.barrier();
    for (SharedMapping* mapping : {&normeds_, &residuals_, &staging_})
      for (std::size_t i = mapping->owners.size(); i > 1; --i) mapping->owners.pop_back();
    control_.barrier();  // Nobody's memory goes before all mappings of it are closed.
  } catch (const std::exception& error) {
    log_warn("while closing the exchange of rows: ", error.what());
  }
}

/// Where `source` puts its rows for rank `at`.
std::byte* RowExchange<Cuda>::slot(int at, int source) const {
  return staging_.peers[static_cast<std::size_t>(at)] + kFlagBytes +
         source * slot_rows(rows_.rows, size()) * rows_.row_bytes;
}

void RowExchange<Cuda>::copy(std::byte* to, const std::byte* from, std::int64_t size_bytes) {
  TANDEM_CHECK(cudaMemcpyAsync(to, from, static_cast<std::size_t>(size_bytes),
                               cudaMemcpyDeviceToDevice, stream_.handle()));
}

/// Behind what this rank's stream did before, with the system-wide fence of a stream write.
void RowExchange<Cuda>::tell(Phase phase) {
  const auto at = (static_cast<std::int64_t>(phase) * kernels::kMaxPeers + rank()) * 4;
  for (int r = 0; r < size(); ++r)
    if (r != rank())
      TANDEM_CHECK(driver().stream_write_value32(
          stream_.handle(), address(staging_.peers[static_cast<std::size_t>(r)] + at), calls_,
          CU_STREAM_WRITE_VALUE_DEFAULT));
}

void RowExchange<Cuda>::wait(Phase phase) {
  const std::byte* flags = staging_.peers[static_cast<std::size_t>(rank())];
  for (int r = 0; r < size(); ++r)
    if (r != rank())
      TANDEM_CHECK(driver().stream_wait_value32(
          stream_.handle(),
          address(flags + (static_cast<std::int64_t>(phase) * kernels::kMaxPeers + r) * 4), calls_,
          CU_STREAM_WAIT_VALUE_GEQ));
}

std::uint32_t RowExchange<Cuda>::exchanges() const {
  const std::byte* neighbour = staging_.peers[static_cast<std::size_t>((rank() + 1) % size())];
  for (int phase = 0; phase < kPhases; ++phase)
    reader_->add(neighbour + (phase * kernels::kMaxPeers + rank()) * 4);
  const auto told = reader_->read();
  return told[0] + told[1];
}

/// One landing place per source is enough: this rank sends call k + 1 after all ranks told that
/// they had normed, and so read, call k.
void RowExchange<Cuda>::scatter(const std::byte* partial, std::int64_t rows) {
  for (int step = 1; step < size(); ++step) {  // Every rank begins with another one.
    const int to = (rank() + step) % size();
    const RowRange range = rows_of_rank(rows, to, size());
    copy(slot(to, rank()), partial + range.begin * rows_.row_bytes, range.size() * rows_.row_bytes);
  }
  tell(Phase::kScattered);
  wait(Phase::kScattered);
}

/// A rank that told `kScattered` has no reader of the old rows before it on its compute stream.
void RowExchange<Cuda>::gather(const SharedMapping& to, const std::byte* base, std::int64_t first,
                               std::int64_t rows) {
  const RowRange own = rows_of_rank(rows, rank(), size());
  const std::int64_t offset = (first + own.begin) * rows_.row_bytes;
  for (int step = 1; step < size(); ++step)
    copy(to.peers[static_cast<std::size_t>((rank() + step) % size())] + offset, base + offset,
         own.size() * rows_.row_bytes);
}

template <typename T>
bool RowExchange<Cuda>::takes(const kernels::AddNormArgs<T, Cuda>& args) const {
  const std::int64_t rows = args.residual.rows;
  return rows >= size() && (rows + size() - 1) / size() <= slot_rows(rows_.rows, size()) &&
         args.residual.cols * static_cast<std::int64_t>(sizeof(T)) == rows_.row_bytes &&
         args.residual.stride == args.residual.cols && args.normed.stride == args.normed.cols &&
         kernels::can_sum_add_norm(args);
}

template <typename T>
void RowExchange<Cuda>::reduce_add_norm(Context<Cuda>& ctx, TensorView<T, Cuda> partial,
                                        const kernels::AddNormArgs<T, Cuda>& args,
                                        const ExchangeParts& parts) {
  TANDEM_ASSERT(takes(args) && partial.stride == partial.cols, "rows that cannot be exchanged");
  const std::int64_t rows = partial.rows;
  const RowRange own = rows_of_rank(rows, rank(), size());
  if (parts.communicate) {
    ++calls_;
    scatter(reinterpret_cast<const std::byte*>(partial.data), rows);
  }
  if (parts.compute) {
    kernels::SumParts<T> sum;
    sum.size = size();
    for (int r = 0; r < size(); ++r)
      sum.parts[static_cast<std::size_t>(r)] =
          r == rank() ? partial.row(own.begin) : reinterpret_cast<const T*>(slot(rank(), r));
    kernels::sum_add_norm(ctx, stream_, sum, rows_of(args, own));
  }
  if (!parts.communicate) return;
  const auto first_row = [&](const T* data, const std::byte* base) {
    return (reinterpret_cast<const std::byte*>(data) - base) / rows_.row_bytes;
  };
  gather(normeds_, rows_.normed, first_row(args.normed.data, rows_.normed), rows);
  if (parts.whole_residual)
    gather(residuals_, rows_.residual, first_row(args.residual.data, rows_.residual), rows);
  tell(Phase::kGathered);
  wait(Phase::kGathered);
}

/// Two calls on known values: rank r's partial rows are all r + 1, the residual is 1.
bool RowExchange<Cuda>::works(Context<Cuda>& ctx) {
  const std::int64_t cols = rows_.row_bytes / 4,
                     rows = std::min<std::int64_t>(2 * size(), rows_.rows);
  const auto elements = static_cast<std::size_t>(rows * cols);
  const auto bytes = static_cast<std::int64_t>(elements * sizeof(float));
  const Buffer<float, Cuda> partial(rows * cols);
  std::vector<float> host(elements, static_cast<float>(rank() + 1));
  const std::vector<float> ones(elements, 1.0f);
  copy_to_device(stream_, partial.data(), host.data(), bytes);
  copy_to_device(stream_, rows_.residual, ones.data(), bytes);
  kernels::AddNormArgs<float, Cuda> args;
  args.residual = {reinterpret_cast<float*>(rows_.residual), rows, cols};
  args.normed = {reinterpret_cast<float*>(rows_.normed), rows, cols};
  const bool here = takes(args);
  if (control_.min(here ? 1 : 0) == 0) return false;
  for (int call = 0; call < 2; ++call)
    reduce_add_norm(ctx, partial.view(rows, cols), args, {true, true, call == 1});
  const auto end = std::chrono::steady_clock::now() + kTestLimit;
  while (!stream_.idle()) {
    if (std::chrono::steady_clock::now() > end) {
      const std::string text = concat(
          "the first exchange of rows over peer memory did not end "
          "within ",
          kTestLimit.count(), " s: use --overlap=off");
      control_.fault(text);
      throw Error(text);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  const auto sum = static_cast<float>(size() * (size() + 1) / 2);
  bool right = true;
  for (const std::byte* from : {rows_.normed, rows_.residual}) {
    copy_to_host(stream_, host.data(), from, bytes);
    stream_.synchronize();
    right = right && std::all_of(host.begin(), host.end(),
                                 [=](float value) { return value == 1.0f + 2.0f * sum; });
  }
  return control_.min(right ? 1 : 0) == 1;
}

#define TANDEM_INSTANTIATE(T)                                                            \
  template bool RowExchange<Cuda>::takes(const kernels::AddNormArgs<T, Cuda>&) const;    \
  template void RowExchange<Cuda>::reduce_add_norm(Context<Cuda>&, TensorView<T, Cuda>,  \
                                                   const kernels::AddNormArgs<T, Cuda>&, \
                                                   const ExchangeParts&);
TANDEM_INSTANTIATE(float)
TANDEM_INSTANTIATE(BFloat16)
TANDEM_INSTANTIATE(Float16)
#undef TANDEM_INSTANTIATE

}  // namespace tandem::comm
