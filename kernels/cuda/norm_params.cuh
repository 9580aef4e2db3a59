// SPDX-License-Identifier: Apache-2.0
// `AddNormArgs` but for the branch, as the kernels take it that add a branch to the residual and
// norm the result.
#pragma once

#include "kernels/add_norm.h"
#include "kernels/cuda/numeric.cuh"

namespace tandem::kernels {

template <typename E>
struct NormParams {
  E* residual;
  std::int64_t residual_stride;
  E* normed;
  std::int64_t normed_stride;
  const float* bias;
  const float* post_weight;
  const float* next_weight;
  float post_eps, next_eps, scale;
  int hidden;

  /// Whether all of it can be read and written `elements` (16 bytes of E) at a time.
  bool wide(int elements) const {
    return hidden % elements == 0 && residual_stride % elements == 0 &&
           normed_stride % elements == 0 && aligned_to(residual, 16) && aligned_to(normed, 16) &&
           aligned_to(bias, 16) && aligned_to(post_weight, 16) && aligned_to(next_weight, 16);
  }
};

template <typename T>
NormParams<cuda_t<T>> norm_params(const AddNormArgs<T, Cuda>& args) {
  NormParams<cuda_t<T>> params{};
  params.residual = to_cuda(args.residual.data);
  params.residual_stride = args.residual.stride;
  params.normed = to_cuda(args.normed.data);
  params.normed_stride = args.normed.stride;
  params.bias = args.bias;
  params.post_weight = args.post_norm.weight;
  params.post_eps = args.post_norm.eps;
  params.next_weight = args.next_norm.weight;
  params.next_eps = args.next_norm.eps;
  params.scale = args.scale;
  params.hidden = static_cast<int>(args.residual.cols);
  return params;
}

}  // namespace tandem::kernels
