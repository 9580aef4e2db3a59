// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/linear_cublaslt.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cuda/gemv.h"
#include "kernels/device/cuda/event.h"
#include "kernels/device/log.h"
#include "kernels/linear.h"

namespace tandem::kernels {
namespace {

constexpr std::int64_t kWorkspaceBytes = std::int64_t{64} << 20;
constexpr std::int64_t kFlushBytes = std::int64_t{128} << 20;  // More than the 60 MB L2 of an H200.
constexpr int kCandidates = 16;
constexpr int kTimedRuns = 5;
constexpr std::size_t kMaxPlans = 8192;  // Prefill lengths vary freely; forget all beyond this.

template <auto Destroy>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    TANDEM_CHECK_NOEXCEPT(Destroy(object));
  }
};
using Descriptor = std::unique_ptr<cublasLtMatmulDescOpaque_t, Deleter<cublasLtMatmulDescDestroy>>;
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Deleter<cublasLtMatrixLayoutDestroy>>;
using Preference =
    std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Deleter<cublasLtMatmulPreferenceDestroy>>;

cudaDataType_t cuda_type(DType type) {
  return type == DType::kF32 ? CUDA_R_32F : type == DType::kBF16 ? CUDA_R_16BF : CUDA_R_16F;
}

Layout make_layout(DType type, std::int64_t rows, std::int64_t cols, std::int64_t leading) {
  cublasLtMatrixLayout_t layout = nullptr;
  TANDEM_CHECK(cublasLtMatrixLayoutCreate(&layout, cuda_type(type),
                                          static_cast<std::uint64_t>(rows),
                                          static_cast<std::uint64_t>(cols), leading));
  return Layout(layout);
}

/// cuBLAS is column-major: y^T `[n, m]` = W (transposed from `[k, n]`) x^T `[k, m]`.
Descriptor make_descriptor(int sm_target) {
  cublasLtMatmulDesc_t made = nullptr;
  // COMPUTE_32F also for float inputs: full float products, no TF32.
  TANDEM_CHECK(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  Descriptor descriptor(made);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  TANDEM_CHECK(cublasLtMatmulDescSetAttribute(made, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                              sizeof transposed));
  const std::int32_t target = sm_target;
  if (target > 0)
    TANDEM_CHECK(cublasLtMatmulDescSetAttribute(made, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &target,
                                                sizeof target));
  return descriptor;
}

Preference make_preference(std::int32_t alignment_bytes) {
  cublasLtMatmulPreference_t made = nullptr;
  TANDEM_CHECK(cublasLtMatmulPreferenceCreate(&made));
  Preference preference(made);
  const auto set = [made](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    TANDEM_CHECK(cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(kWorkspaceBytes));
  // Partial sums of a split K stay float: one rounding to the output type, as `linear.h` promises.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE |
                                 CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const auto alignment = static_cast<std::uint32_t>(alignment_bytes);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
  return preference;
}

std::filesystem::path cache_file(const CudaOptions& options) {
  cudaDeviceProp prop{};
  TANDEM_CHECK(cudaGetDeviceProperties(&prop, options.device));
  std::string gpu = prop.name;
  for (char& c : gpu)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '-';
  const std::filesystem::path folder = options.tuning_cache_folder.empty()
                                           ? default_cache_folder()
                                           : std::filesystem::path(options.tuning_cache_folder);
  return folder / concat("matmul-v2-", gpu, "-cublaslt-", cublasLtGetVersion(), ".txt");
}

/// Largest power of two, at most 16, that divides all three addresses.
std::int32_t alignment_of(const void* x, const void* w, const void* y) {
  const auto bits = reinterpret_cast<std::uintptr_t>(x) | reinterpret_cast<std::uintptr_t>(w) |
                    reinterpret_cast<std::uintptr_t>(y) | 16u;
  return static_cast<std::int32_t>(bits & (~bits + 1));
}

}  // namespace

struct CublasLt::Operands {
  const void *x, *w;
  void* y;
  const void* addend = nullptr;  ///< Of y's shape; null: y is the product alone.
  float scale = 1.0f;
};

struct CublasLt::Plan {
  Descriptor descriptor;
  Layout w, x, y;
  cublasLtMatmulAlgo_t algorithm{};
};

CublasLt::CublasLt(const CudaOptions& options)
    : workspace_(kWorkspaceBytes), cache_(cache_file(options)) {
  TANDEM_CHECK(cublasLtCreate(&handle_));
}

CublasLt::~CublasLt() {
  plans_.clear();
  TANDEM_CHECK_NOEXCEPT(cublasLtDestroy(handle_));
}

void CublasLt::matmul(Context<Cuda>& ctx, MatmulShape shape, const void* x, const void* w,
                      void* y) {
  if (shape.m == 0 || shape.n == 0) return;
  shape.sm_target = sm_target_;
  shape.alignment_bytes = alignment_of(x, w, y);
  const Operands operands{x, w, y, nullptr, 1.0f};
  const Plan& plan = plan_for(ctx, shape, operands);
  TANDEM_CHECK(enqueue(ctx, plan, operands, plan.algorithm));
}

void CublasLt::add_matmul(Context<Cuda>& ctx, MatmulShape shape, const void* x, const void* w,
                          float scale, void* sum, void* scratch) {
  if (shape.m == 0 || shape.n == 0) return;
  shape.adds = 1;
  shape.sm_target = sm_target_;
  shape.alignment_bytes = std::min(alignment_of(x, w, sum), alignment_of(x, w, scratch));
  const Plan& plan = plan_for(ctx, shape, {x, w, scratch, sum, scale});
  TANDEM_CHECK(enqueue(ctx, plan, {x, w, sum, sum, scale}, plan.algorithm));
}

cublasStatus_t CublasLt::enqueue(Context<Cuda>& ctx, const Plan& plan, const Operands& operands,
                                 const cublasLtMatmulAlgo_t& algorithm) {
  const float keep = operands.addend != nullptr ? 1.0f : 0.0f;
  const void* addend = operands.addend != nullptr ? operands.addend : operands.y;
  ctx.count_kernel();
  return cublasLtMatmul(handle_, plan.descriptor.get(), &operands.scale, operands.w, plan.w.get(),
                        operands.x, plan.x.get(), &keep, addend, plan.y.get(), operands.y,
                        plan.y.get(), &algorithm, workspace_.data(),
                        static_cast<std::size_t>(workspace_.size_bytes()), ctx.compute().handle());
}

CublasLt::Plan& CublasLt::plan_for(Context<Cuda>& ctx, const MatmulShape& shape,
                                   const Operands& operands) {
  if (const auto found = plans_.find(shape); found != plans_.end()) return *found->second;
  if (plans_.size() >= kMaxPlans) plans_.clear();
  auto plan = std::make_unique<Plan>();
  plan->descriptor = make_descriptor(shape.sm_target);
  plan->w = make_layout(shape.in, shape.k, shape.n, shape.k);
  plan->x = make_layout(shape.in, shape.k, shape.m, shape.x_stride);
  plan->y = make_layout(shape.out, shape.n, shape.m, shape.y_stride);
  choose_algorithm(ctx, shape, operands, *plan);
  return *plans_.emplace(shape, std::move(plan)).first->second;
}

void CublasLt::choose_algorithm(Context<Cuda>& ctx, const MatmulShape& shape,
                                const Operands& operands, Plan& plan) {
  static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(MatmulCache::Algorithm));
  if (const auto cached = cache_.find(shape)) {
    std::memcpy(&plan.algorithm, cached->data(), sizeof plan.algorithm);
    cublasLtMatmulHeuristicResult_t checked{};
    const cublasStatus_t status =
        cublasLtMatmulAlgoCheck(handle_, plan.descriptor.get(), plan.w.get(), plan.x.get(),
                                plan.y.get(), plan.y.get(), &plan.algorithm, &checked);
    if (status == CUBLAS_STATUS_SUCCESS &&
        checked.workspaceSize <= static_cast<std::size_t>(kWorkspaceBytes))
      return;
  }
  const Preference preference = make_preference(shape.alignment_bytes);
  cublasLtMatmulHeuristicResult_t results[kCandidates] = {};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_, plan.descriptor.get(), plan.w.get(), plan.x.get(), plan.y.get(), plan.y.get(),
      preference.get(), kCandidates, results, &count);
  TANDEM_ASSERT(status == CUBLAS_STATUS_SUCCESS && count > 0, "cuBLASLt has no algorithm for m ",
                shape.m, ", n ", shape.n, ", k ", shape.k, " (", cublasLtGetStatusString(status),
                ")");
  plan.algorithm = results[0].algo;
  if (!tuning_ || ctx.compute().capturing()) return;
  const Temporary flush = ctx.temporary(static_cast<std::size_t>(kFlushBytes));
  float best_us = std::numeric_limits<float>::max();
  for (int i = 0; i < count; ++i) {
    if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
    const float us = time_us(ctx, plan, operands, results[i].algo, flush.as<void>());
    if (us >= best_us) continue;
    best_us = us;
    plan.algorithm = results[i].algo;
  }
  MatmulCache::Algorithm bytes{};
  std::memcpy(bytes.data(), &plan.algorithm, sizeof plan.algorithm);
  cache_.insert(shape, bytes);
  cache_.save();
  ++num_tuned_;
}

/// Median time of one algorithm with a cold L2, as in a real step: weights arrive from memory.
float CublasLt::time_us(Context<Cuda>& ctx, const Plan& plan, const Operands& operands,
                        const cublasLtMatmulAlgo_t& algorithm, void* flush) {
  std::vector<float> times;
  Event<Cuda> start(true), stop(true);
  for (int run = 0; run <= kTimedRuns; ++run) {  // Run 0 warms up: its time is not kept.
    fill_zero(ctx, flush, kFlushBytes);
    start.record(ctx.compute());
    if (enqueue(ctx, plan, operands, algorithm) != CUBLAS_STATUS_SUCCESS)
      return std::numeric_limits<float>::max();
    stop.record(ctx.compute());
    stop.synchronize();
    if (run > 0) times.push_back(stop.milliseconds_since(start) * 1000.0f);
  }
  std::nth_element(times.begin(), times.begin() + kTimedRuns / 2, times.end());
  return times[kTimedRuns / 2];
}

template <typename T, typename Out>
void matmul(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const LinearWeight<T, Cuda>& w,
            TensorView<Out, Cuda> y) {
  TANDEM_ASSERT(x.cols == w.cols() && y.cols == w.rows() && x.rows == y.rows, x.rows, "x", x.cols,
                " times ", w.rows(), "x", w.cols(), " into ", y.rows, "x", y.cols);
  if constexpr (sizeof(T) == 2)
    if (gemv<T, Out>(ctx, x, w.data(), y)) return;
  ctx.cublaslt().matmul(ctx, matmul_shape(x, y), x.data, w.data(), y.data);
}

template <typename T>
void add_matmul(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const LinearWeight<T, Cuda>& w,
                float scale, TensorView<T, Cuda> sum, TensorView<T, Cuda> scratch) {
  TANDEM_ASSERT(x.cols == w.cols() && sum.cols == w.rows() && sum.stride == scratch.stride, x.rows,
                "x", x.cols, " times ", w.rows(), "x", w.cols());
  ctx.cublaslt().add_matmul(ctx, matmul_shape(x, sum), x.data, w.data(), scale, sum.data,
                            scratch.data);
}

template void add_matmul(Context<Cuda>&, TensorView<const float, Cuda>,
                         const LinearWeight<float, Cuda>&, float, TensorView<float, Cuda>,
                         TensorView<float, Cuda>);
template void add_matmul(Context<Cuda>&, TensorView<const BFloat16, Cuda>,
                         const LinearWeight<BFloat16, Cuda>&, float, TensorView<BFloat16, Cuda>,
                         TensorView<BFloat16, Cuda>);
template void add_matmul(Context<Cuda>&, TensorView<const Float16, Cuda>,
                         const LinearWeight<Float16, Cuda>&, float, TensorView<Float16, Cuda>,
                         TensorView<Float16, Cuda>);
template void matmul<float, float>(Context<Cuda>&, TensorView<const float, Cuda>,
                                   const LinearWeight<float, Cuda>&, TensorView<float, Cuda>);
template void matmul<BFloat16, BFloat16>(Context<Cuda>&, TensorView<const BFloat16, Cuda>,
                                         const LinearWeight<BFloat16, Cuda>&,
                                         TensorView<BFloat16, Cuda>);
template void matmul<BFloat16, float>(Context<Cuda>&, TensorView<const BFloat16, Cuda>,
                                      const LinearWeight<BFloat16, Cuda>&, TensorView<float, Cuda>);
template void matmul<Float16, Float16>(Context<Cuda>&, TensorView<const Float16, Cuda>,
                                       const LinearWeight<Float16, Cuda>&,
                                       TensorView<Float16, Cuda>);
template void matmul<Float16, float>(Context<Cuda>&, TensorView<const Float16, Cuda>,
                                     const LinearWeight<Float16, Cuda>&, TensorView<float, Cuda>);

}  // namespace tandem::kernels
