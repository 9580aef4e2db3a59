// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/linear_cublaslt.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cuda/cold_timer.h"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/tuning_file.h"
#include "kernels/linear.h"

namespace tandem::kernels {
namespace {

constexpr std::int64_t kMaxEnlargedRows = 4096;  // above, a bucket's m are alike, and large
constexpr std::size_t kMaxPlans = 8192;  // Prefill lengths vary freely; forget all beyond this.

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

/// The operands of a matmul with more rows: x repeated, products into memory of their own.
struct CublasLt::Enlarged {
  Temporary x, y, addend;
  Operands operands;

  Enlarged(Context<Cuda>& ctx, const MatmulShape& small, const MatmulShape& large,
           const Operands& o)
      : x(make(ctx, size(large.m, large.x_stride, large.in))),
        y(make(ctx, size(large.m, large.y_stride, large.out))),
        addend(make(ctx, o.addend == nullptr ? 1 : size(large.m, large.y_stride, large.out))),
        operands{x.as<void>(), o.w, y.as<void>(),
                 o.addend == nullptr ? nullptr : addend.as<const void>(), o.scale} {
    const std::int64_t row = size(1, small.x_stride, small.in);
    for (std::int64_t first = 0; first < large.m; first += small.m) {
      const std::int64_t rows = std::min(small.m, large.m - first);
      copy_on_device(ctx, x.as<std::byte>() + first * row, o.x,
                     (rows - 1) * row + size(1, small.k, small.in));
    }
  }

 private:
  static std::int64_t size(std::int64_t rows, std::int64_t stride, DType type) {
    return rows * stride * size_bytes(type);
  }
  static Temporary make(Context<Cuda>& ctx, std::int64_t size) {
    return ctx.temporary(static_cast<std::size_t>(size));
  }
};

CublasLt::CublasLt(const CudaOptions& options)
    : workspace_(CublasLtPlan::kWorkspaceBytes),
      cache_(tuning_file(options, "cublaslt", "")),
      decode_choice_(tuning_file(options, "decode", cuda_revision())) {
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
  const CublasLtPlan& plan = plan_for(ctx, shape, operands);
  TANDEM_CHECK(enqueue(ctx, plan, operands, plan.algorithm));
}

void CublasLt::add_matmul(Context<Cuda>& ctx, MatmulShape shape, const void* x, const void* w,
                          float scale, void* sum, void* scratch) {
  if (shape.m == 0 || shape.n == 0) return;
  shape.adds = 1;
  shape.sm_target = sm_target_;
  shape.alignment_bytes = std::min(alignment_of(x, w, sum), alignment_of(x, w, scratch));
  const CublasLtPlan& plan = plan_for(ctx, shape, {x, w, scratch, sum, scale});
  TANDEM_CHECK(enqueue(ctx, plan, {x, w, sum, sum, scale}, plan.algorithm));
}

cublasStatus_t CublasLt::enqueue(Context<Cuda>& ctx, const CublasLtPlan& plan,
                                 const Operands& operands, const cublasLtMatmulAlgo_t& algorithm) {
  const float keep = operands.addend != nullptr ? 1.0f : 0.0f;
  const void* addend = operands.addend != nullptr ? operands.addend : operands.y;
  ctx.count_kernel();
  return cublasLtMatmul(handle_, plan.descriptor.get(), &operands.scale, operands.w, plan.w.get(),
                        operands.x, plan.x.get(), &keep, addend, plan.y.get(), operands.y,
                        plan.y.get(), &algorithm, workspace_.data(),
                        static_cast<std::size_t>(workspace_.size_bytes()), ctx.compute().handle());
}

CublasLtPlan& CublasLt::plan_for(Context<Cuda>& ctx, const MatmulShape& shape,
                                 const Operands& operands) {
  if (const auto found = plans_.find(shape); found != plans_.end()) return *found->second;
  if (plans_.size() >= kMaxPlans) plans_.clear();
  auto plan = std::make_unique<CublasLtPlan>(shape);
  choose_algorithm(ctx, shape, operands, *plan);
  return *plans_.emplace(shape, std::move(plan)).first->second;
}

void CublasLt::choose_algorithm(Context<Cuda>& ctx, const MatmulShape& shape,
                                const Operands& operands, CublasLtPlan& plan) {
  static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(AlgorithmCache::Words));
  const auto cached = cache_.find(shape);
  if (cached) {
    std::memcpy(&plan.algorithm, cached->data(), sizeof plan.algorithm);
  } else if (tuning_ && !ctx.compute().capturing()) {
    MatmulShape large = shape;
    if (shape.m <= kMaxEnlargedRows) large.m = m_bucket(shape.m);
    plan.algorithm = large.m == shape.m
                         ? fastest(ctx, shape, operands)
                         : fastest(ctx, large, Enlarged(ctx, shape, large, operands).operands);
    AlgorithmCache::Words bytes{};
    std::memcpy(bytes.data(), &plan.algorithm, sizeof plan.algorithm);
    cache_.insert(shape, bytes);
    cache_.save();
    ++num_tuned_;
  } else {
    plan.algorithm = plan.candidates(handle_).front().algo;
    return;
  }
  if (!plan.can_use(handle_, plan.algorithm))
    plan.algorithm = plan.candidates(handle_).front().algo;
}

cublasLtMatmulAlgo_t CublasLt::fastest(Context<Cuda>& ctx, const MatmulShape& shape,
                                       const Operands& operands) {
  const CublasLtPlan plan(shape);
  const auto candidates = plan.candidates(handle_);
  cublasLtMatmulAlgo_t best = candidates.front().algo;
  ColdTimer timer(ctx);
  float best_us = std::numeric_limits<float>::max();
  for (const auto& candidate : candidates) {
    if (candidate.state != CUBLAS_STATUS_SUCCESS) continue;
    const auto us = timer.median_us(
        [&] { return enqueue(ctx, plan, operands, candidate.algo) == CUBLAS_STATUS_SUCCESS; });
    if (!us || *us >= best_us) continue;
    best_us = *us;
    best = candidate.algo;
  }
  return best;
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
