// SPDX-License-Identifier: Apache-2.0
#include "comm/cuda_communicator.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <thread>

#include "comm/all_reduce_timing.h"
#include "comm/nccl_check.h"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/linear_cublaslt.h"
#include "kernels/cuda/skinny.h"
#include "kernels/device/cuda/stamps.h"
#include "kernels/device/error.h"
#include "kernels/device/log.h"
#include "kernels/op_work.h"

namespace tandem::comm {
namespace {

using kernels::PeerAlgorithm;

/// NCCL is connected by then, so a thousandth of it is the rule.
constexpr std::chrono::seconds kWarmUpLimit{30};

ncclDataType_t nccl_type(DType type) {
  return type == DType::kF32 ? ncclFloat : type == DType::kBF16 ? ncclBfloat16 : ncclHalf;
}

AllReduceTable make_table(AllReduceChoice choice, int ranks) {
  constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
  const AllReduceTable defaults = default_all_reduce_table(ranks);
  switch (choice) {
    case AllReduceChoice::kOneShot:
      return {defaults.push_bytes, kAll, 0};
    case AllReduceChoice::kTwoShot:
      return {0, 0, kAll};
    case AllReduceChoice::kNccl:
      return {0, 0, 0};
    case AllReduceChoice::kAuto:
      break;
  }
  return defaults;
}

std::string table_text(const AllReduceTable& table) {
  return concat("push up to ", table.push_bytes >> 10, " KiB, pull up to ", table.pull_bytes >> 10,
                " KiB, two-shot up to ", table.two_shot_bytes >> 10, " KiB, NCCL above");
}

template <typename T>
bool aligned(const T* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

template <typename T>
kernels::PeerGrid grid_of(Span<T, Cuda> data) {
  return kernels::flat_grid((data.size * static_cast<std::int64_t>(sizeof(T)) + 15) / 16);
}

}  // namespace

Communicator<Cuda>::Communicator(Context<Cuda>& ctx, ControlPlane& control,
                                 const CudaCommunicatorOptions& options)
    : control_(control),
      compute_(ctx.compute()),
      prefill_max_ctas_(options.prefill_max_ctas),
      table_(make_table(options.all_reduce, control.size())),
      seam_table_(table_) {
  if (size() == 1) return;
  const bool shared_gpu = prepare_nccl(control, options.allow_shared_gpu);
  decode_ =
      std::make_unique<NcclComm>(control, NcclCommOptions{"tandem-decode", 0, options.deadline});
  prefill_ = std::make_unique<NcclComm>(
      control, NcclCommOptions{"tandem-prefill", options.prefill_max_ctas, options.deadline});
  connect_peers(ctx, options);
  warm_up(ctx);
  // On a shared GPU another process's time slices are in every measurement: keep to defaults.
  if (shared_gpu) ctx.cublaslt().set_tuning(false);
  if (options.all_reduce != AllReduceChoice::kAuto || peers_ == nullptr || shared_gpu) return;
  const AllReduceTable table = choose_table(time_all_ways(ctx, *this, control, /*seam=*/false));
  seam_table_ = choose_table(time_all_ways(ctx, *this, control, /*seam=*/true));
  table_ = table;
  if (rank() == 0)
    log_info("all-reduce: ", table_text(table_),
             "; with residual and norm: ", table_text(seam_table_));
}

/// IPC before the window: it is not tied to one version of NCCL and works on a shared GPU.
void Communicator<Cuda>::connect_peers(Context<Cuda>& ctx, const CudaCommunicatorOptions& options) {
  if (options.all_reduce == AllReduceChoice::kNccl) return;
  std::string why = concat("there are more than ", kernels::kMaxPeers, " ranks"), why_window;
  if (size() <= kernels::kMaxPeers) {
    const std::int64_t size_bytes = kernels::PeerLayout{size()}.size_bytes();
    auto mapping = map_over_ipc(control_, size_bytes, why);
    if (!mapping) mapping = map_over_window(control_, *decode_, size_bytes, why_window);
    if (mapping) {
      peers_ = std::make_unique<PeerMemory>(rank(), std::move(*mapping));
      control_.barrier();
      if (exchange_works(ctx)) return;
      peers_.reset();
      why = "a test exchange gave wrong sums: is an IOMMU or PCIe ACS between the GPUs?";
    }
  }
  const std::string reason = concat(why, why_window.empty() ? "" : "; ", why_window);
  TANDEM_REQUIRE(
      options.all_reduce == AllReduceChoice::kAuto, "--all-reduce=", name(options.all_reduce),
      " needs peer memory, which there is none of (", reason, "): use --all-reduce=auto");
  log_info("no peer memory (", reason, "): all collectives go through NCCL");
}

/// Every way once, on known values: some machines map peer memory and then lose the writes.
bool Communicator<Cuda>::exchange_works(Context<Cuda>& ctx) {
  constexpr std::int64_t kSize = 4096;
  kernels::PeerView view = peers_->view();
  view.spin_limit_ns = 20'000'000'000;
  const Buffer<float, Cuda> data(kSize);
  bool right = true;
  for (const auto algorithm :
       {PeerAlgorithm::kPush, PeerAlgorithm::kPull, PeerAlgorithm::kTwoShot}) {
    std::vector<float> values(kSize, static_cast<float>(rank() + 1));
    copy_to_device(ctx, data.data(), values.data(), data.size_bytes());
    kernels::peer_all_reduce(ctx, compute_, view, algorithm, data.span());
    copy_to_host(ctx, values.data(), data.data(), data.size_bytes());
    compute_.synchronize();
    const auto sum = static_cast<float>(size() * (size() + 1) / 2);
    right = right && std::all_of(values.begin(), values.end(), [=](float v) { return v == sum; });
  }
  return control_.min(right ? 1 : 0) == 1;
}

/// NCCL connects lazily: every communicator runs once before anything is captured or timed. Where
/// peer access is reported but broken this first collective never ends.
void Communicator<Cuda>::warm_up(Context<Cuda>& ctx) {
  const Buffer<float, Cuda> data(1024);
  fill_zero(ctx, data.data(), data.size_bytes());
  for (const NcclComm* comm : {decode_.get(), prefill_.get()})
    TANDEM_CHECK(ncclAllReduce(data.data(), data.data(), 1024, ncclFloat, ncclSum, comm->handle(),
                               compute_.handle()));
  const auto end = std::chrono::steady_clock::now() + kWarmUpLimit;
  while (!compute_.idle()) {
    if (std::chrono::steady_clock::now() > end) {
      const std::string text =
          concat("the first all-reduce of NCCL did not end within ", kWarmUpLimit.count(),
                 " s: try again with NCCL_P2P_DISABLE=1; when that helps, switch off ACS and the "
                 "IOMMU");
      control_.fault(text);
      throw Error(text);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Communicator<Cuda>::~Communicator() {
  if (size() == 1) return;
  // A peer may still be reading our workspace. After a failure nobody is waited for.
  if (std::uncaught_exceptions() > 0) {
    if (decode_ != nullptr) decode_->abort();
    if (prefill_ != nullptr) prefill_->abort();
    return;
  }
  try {
    compute_.synchronize();
    control_.barrier();
  } catch (const std::exception& error) {
    log_warn("while closing the communicator: ", error.what());
  }
}

std::optional<PeerAlgorithm> Communicator<Cuda>::algorithm_for(const AllReduceTable& table,
                                                               std::int64_t size_bytes) const {
  if (peers_ == nullptr) return std::nullopt;
  if (size_bytes <= table.push_bytes) return PeerAlgorithm::kPush;
  if (size_bytes <= table.pull_bytes) return PeerAlgorithm::kPull;
  if (size_bytes <= table.two_shot_bytes) return PeerAlgorithm::kTwoShot;
  return std::nullopt;
}

ncclComm_t Communicator<Cuda>::nccl(const Stream<Cuda>& stream) const {
  return (stream.capturing() ? decode_ : prefill_)->handle();
}

template <typename T>
void Communicator<Cuda>::all_reduce_sum(Context<Cuda>& ctx, Span<T, Cuda> data) {
  if (size() == 1 || data.size == 0) return;
  const OpTimer timer(ctx, Activity::kAllReduce,
                      [&] { return kernels::message_work(data.size * std::int64_t{sizeof(T)}); });
  const auto algorithm = algorithm_for(table_, data.size * static_cast<std::int64_t>(sizeof(T)));
  if (algorithm && aligned(data.data) && kernels::fits(*algorithm, grid_of(data)))
    return kernels::peer_all_reduce(ctx, compute_, peers_->view(), *algorithm, data);
  all_reduce_sum_on(compute_, data);
}

template <typename T>
void Communicator<Cuda>::all_reduce_sum_on(Stream<Cuda>& stream, Span<T, Cuda> data) {
  if (size() == 1 || data.size == 0) return;
  TANDEM_CHECK(ncclAllReduce(data.data, data.data, static_cast<std::size_t>(data.size),
                             nccl_type(dtype_of<T>), ncclSum, nccl(stream), stream.handle()));
}

void Communicator<Cuda>::separate_domains(Context<Cuda>& ctx, bool on) {
  SyncDomain domain = ctx.comm().domain();
  domain.physical_remote = on && ctx.num_domains() > 1 ? 1 : 0;
  if (domain != ctx.comm().domain()) ctx.comm().set_domain(domain);
}

void Communicator<Cuda>::share_device(Context<Cuda>& ctx, bool on) {
  ctx.cublaslt().set_sm_target(on && size() > 1 ? ctx.num_sms() - prefill_max_ctas_ : 0);
}

void Communicator<Cuda>::all_gather(Context<Cuda>& ctx, const void* mine, void* out,
                                    std::int64_t size_bytes) {
  all_gather_v(ctx, mine, out,
               std::vector<std::int64_t>(static_cast<std::size_t>(size()), size_bytes));
}

void Communicator<Cuda>::all_gather_v(Context<Cuda>& ctx, const void* mine, void* out,
                                      const std::vector<std::int64_t>& counts_bytes) {
  if (size() == 1) return copy_on_device(ctx, out, mine, counts_bytes[0]);
  const OpTimer timer(ctx, Activity::kAllGather, [&] {
    return kernels::message_work(counts_bytes[static_cast<std::size_t>(rank())]);
  });
  const std::int64_t longest = *std::max_element(counts_bytes.begin(), counts_bytes.end());
  if (peers_ != nullptr && longest <= kernels::kMaxPeerGatherBytes)
    return kernels::peer_all_gather(ctx, compute_, peers_->view(), mine, out, counts_bytes);
  const ncclComm_t comm = nccl(compute_);
  TANDEM_CHECK(ncclGroupStart());
  auto* to = static_cast<std::byte*>(out);
  for (int root = 0; root < size(); ++root) {
    const auto count = static_cast<std::size_t>(counts_bytes[static_cast<std::size_t>(root)]);
    if (count > 0)
      TANDEM_CHECK(ncclBroadcast(mine, to, count, ncclUint8, root, comm, compute_.handle()));
    to += count;
  }
  TANDEM_CHECK(ncclGroupEnd());
}

template <typename T>
void Communicator<Cuda>::reduce_add_norm(Context<Cuda>& ctx, TensorView<T, Cuda> partial,
                                         const kernels::AddNormArgs<T, Cuda>& args) {
  TANDEM_ASSERT(partial.stride == partial.cols && args.branch.data == partial.data,
                "the partial sum is contiguous and is the branch");
  const std::int64_t elements = partial.rows * partial.cols;
  const auto algorithm =
      algorithm_for(seam_table_, elements * static_cast<std::int64_t>(sizeof(T)));
  kernels::PeerView view = peers_ == nullptr ? kernels::PeerView{} : peers_->view();
  view.row_blocks = row_blocks_;
  if (size() > 1 && algorithm && kernels::can_reduce_add_norm(view, *algorithm, partial, args)) {
    const OpTimer timer(ctx, Activity::kAllReduce,
                        [&] { return kernels::message_work(elements * std::int64_t{sizeof(T)}); });
    return kernels::peer_reduce_add_norm(ctx, compute_, view, *algorithm, partial, args);
  }
  all_reduce_sum(ctx, Span<T, Cuda>{partial.data, elements});
  const OpTimer timer(ctx, Activity::kAddNorm, [&] { return kernels::add_norm_work(args); });
  kernels::add_norm(ctx, args);
}

template <typename T>
bool Communicator<Cuda>::project_reduce_add_norm(Context<Cuda>& ctx, TensorView<const T, Cuda> x,
                                                 const kernels::LinearWeight<T, Cuda>& weight,
                                                 TensorView<T, Cuda> partial,
                                                 const kernels::AddNormArgs<T, Cuda>& args,
                                                 Activity activity) {
  if constexpr (sizeof(T) != 2) {
    return false;
  } else {
    using kernels::DecodeKernel;
    if (peers_ == nullptr || x.rows > kernels::kSkinnyMaxReduceRows) return false;
    const auto size_bytes = partial.rows * partial.cols * static_cast<std::int64_t>(sizeof(T));
    const auto [fused, is_new] =
        fused_.try_emplace(std::pair(x.rows, activity), DecodeKernel::kLibrary);
    if (is_new) {
      const auto algorithm = algorithm_for(seam_table_, size_bytes);
      if (algorithm && *algorithm != PeerAlgorithm::kTwoShot)
        fused->second = kernels::decode_reduce_kernel(ctx, x, weight.data(), partial, args);
      const std::int64_t key =
          std::int64_t{ctx.num_sms()} << 8 | static_cast<std::int64_t>(fused->second);
      if (control_.min(key) != control_.max(key)) fused->second = DecodeKernel::kLibrary;
    }
    if (fused->second == DecodeKernel::kLibrary) return false;
    std::uint64_t* pushed_at = ctx.recorder() == nullptr ? nullptr : ctx.recorder()->reserve();
    kernels::decode_reduce_add_norm(ctx, fused->second, peers_->view(), x, weight.data(), args,
                                    pushed_at);
    if (pushed_at != nullptr)
      ctx.recorder()->hand_over(Activity::kAllReduce, kernels::message_work(size_bytes));
    return true;
  }
}

void Communicator<Cuda>::raise_error() noexcept {
  if (peers_ != nullptr) peers_->raise_error();
}

std::optional<DevicePosition> Communicator<Cuda>::position() const {
  if (peers_ == nullptr) return std::nullopt;
  return peers_->position();
}

std::string Communicator<Cuda>::async_error() const {
  if (size() == 1) return {};
  const std::string decode = decode_->async_error();
  return decode.empty() ? prefill_->async_error() : decode;
}

template void Communicator<Cuda>::all_reduce_sum(Context<Cuda>&, Span<float, Cuda>);
template void Communicator<Cuda>::all_reduce_sum(Context<Cuda>&, Span<BFloat16, Cuda>);
template void Communicator<Cuda>::all_reduce_sum(Context<Cuda>&, Span<Float16, Cuda>);
template void Communicator<Cuda>::all_reduce_sum_on(Stream<Cuda>&, Span<float, Cuda>);
template void Communicator<Cuda>::all_reduce_sum_on(Stream<Cuda>&, Span<BFloat16, Cuda>);
template void Communicator<Cuda>::all_reduce_sum_on(Stream<Cuda>&, Span<Float16, Cuda>);
template void Communicator<Cuda>::reduce_add_norm(Context<Cuda>&, TensorView<float, Cuda>,
                                                  const kernels::AddNormArgs<float, Cuda>&);
template void Communicator<Cuda>::reduce_add_norm(Context<Cuda>&, TensorView<BFloat16, Cuda>,
                                                  const kernels::AddNormArgs<BFloat16, Cuda>&);
template void Communicator<Cuda>::reduce_add_norm(Context<Cuda>&, TensorView<Float16, Cuda>,
                                                  const kernels::AddNormArgs<Float16, Cuda>&);

template bool Communicator<Cuda>::project_reduce_add_norm(
    Context<Cuda>&, TensorView<const float, Cuda>, const kernels::LinearWeight<float, Cuda>&,
    TensorView<float, Cuda>, const kernels::AddNormArgs<float, Cuda>&, Activity);
template bool Communicator<Cuda>::project_reduce_add_norm(
    Context<Cuda>&, TensorView<const BFloat16, Cuda>, const kernels::LinearWeight<BFloat16, Cuda>&,
    TensorView<BFloat16, Cuda>, const kernels::AddNormArgs<BFloat16, Cuda>&, Activity);
template bool Communicator<Cuda>::project_reduce_add_norm(
    Context<Cuda>&, TensorView<const Float16, Cuda>, const kernels::LinearWeight<Float16, Cuda>&,
    TensorView<Float16, Cuda>, const kernels::AddNormArgs<Float16, Cuda>&, Activity);

}  // namespace tandem::comm
