// SPDX-License-Identifier: Apache-2.0
#include "kernels/add_norm.h"

#include <vector>

#include "kernels/cpu/norm.h"
#include "kernels/device/cpu/context.h"

namespace tandem::kernels {
namespace {

/// One row; `x` is scratch of `hidden` floats.
template <typename T>
void add_norm_row(const AddNormArgs<T, Cpu>& args, std::int64_t row, float* x) {
  const std::int64_t hidden = args.residual.cols;
  T* residual = args.residual.row(row);
  if (args.branch.rows > 0) {
    const T* branch = args.branch.row(row);
    for (std::int64_t i = 0; i < hidden; ++i)
      x[i] = static_cast<float>(branch[i]) + (args.bias == nullptr ? 0.0f : args.bias[i]);
    if (args.post_norm.weight != nullptr) {
      const float inverse = cpu::inverse_rms(x, hidden, args.post_norm.eps);
      for (std::int64_t i = 0; i < hidden; ++i) x[i] *= inverse * args.post_norm.weight[i];
    }
    for (std::int64_t i = 0; i < hidden; ++i)
      residual[i] = T(static_cast<float>(residual[i]) + args.scale * x[i]);
  }
  if (args.normed.data == nullptr) return;
  T* normed = args.normed.row(row);
  for (std::int64_t i = 0; i < hidden; ++i) x[i] = static_cast<float>(residual[i]);
  if (args.next_norm.weight == nullptr) {
    for (std::int64_t i = 0; i < hidden; ++i) normed[i] = T(x[i]);
    return;
  }
  const float inverse = cpu::inverse_rms(x, hidden, args.next_norm.eps);
  for (std::int64_t i = 0; i < hidden; ++i)
    normed[i] = T(x[i] * inverse * args.next_norm.weight[i]);
}

}  // namespace

template <typename T>
void add_norm(Context<Cpu>&, const AddNormArgs<T, Cpu>& args) {
#pragma omp parallel if (args.residual.rows > 1)
  {
    std::vector<float> scratch(static_cast<std::size_t>(args.residual.cols));
#pragma omp for
    for (std::int64_t row = 0; row < args.residual.rows; ++row)
      add_norm_row(args, row, scratch.data());
  }
}

template <typename T>
void project_add_norm(Context<Cpu>& ctx, TensorView<const T, Cpu> x, const LinearWeight<T, Cpu>& w,
                      TensorView<T, Cpu> scratch, const AddNormArgs<T, Cpu>& args) {
  matmul<T, T>(ctx, x, w, scratch);
  add_norm(ctx, args);
}

template void add_norm(Context<Cpu>&, const AddNormArgs<float, Cpu>&);
template void add_norm(Context<Cpu>&, const AddNormArgs<BFloat16, Cpu>&);
template void add_norm(Context<Cpu>&, const AddNormArgs<Float16, Cpu>&);
template void project_add_norm(Context<Cpu>&, TensorView<const float, Cpu>,
                               const LinearWeight<float, Cpu>&, TensorView<float, Cpu>,
                               const AddNormArgs<float, Cpu>&);
template void project_add_norm(Context<Cpu>&, TensorView<const BFloat16, Cpu>,
                               const LinearWeight<BFloat16, Cpu>&, TensorView<BFloat16, Cpu>,
                               const AddNormArgs<BFloat16, Cpu>&);
template void project_add_norm(Context<Cpu>&, TensorView<const Float16, Cpu>,
                               const LinearWeight<Float16, Cpu>&, TensorView<Float16, Cpu>,
                               const AddNormArgs<Float16, Cpu>&);

}  // namespace tandem::kernels
