// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/gemv.cuh"
#include "kernels/cuda/skinny.h"

namespace tandem::kernels {
namespace {

/// A unit is one column of the result: its gate row and its up row are summed in the same tile.
template <typename E>
struct GateUpEpilogue {
  E* out;
  std::int64_t out_stride;
  const float* bias;
  GateActivation activation;

  static constexpr bool kNorms = true;
  static constexpr int kLate = 3;
  __device__ void before_wait(int, int) const {}
  __device__ void start() const {}
  __device__ void load_first(int, int) const {}
  __device__ void load(int, int) const {}
  __device__ void operator()(int column, int unit, float gate, float up) const {
    if (bias != nullptr) {
      gate += bias[GemvPairs::row(unit, 0)];
      up += bias[GemvPairs::row(unit, 8)];
    }
    out[column * out_stride + unit] = from_float<E>(activate_any(activation, gate) * up);
  }
  __device__ void finish(int, int, int) const {}
};

}  // namespace

template <typename T>
bool gemv_gate_up(Context<Cuda>& ctx, const GateUpArgs<T, Cuda>& args) {
  const T* w = args.weight->data();
  const DecodeKernel kernel = decode_kernel_with_norm(
      ctx, matmul_shape(args.x, args.scratch), args.x.data, w, args.scratch.data, args.deferred);
  if (kernel == DecodeKernel::kLibrary) return false;
  if (kernel == DecodeKernel::kSkinny) {
    skinny_gate_up(ctx, args);
    return true;
  }
  const GateUpEpilogue<cuda_t<T>> epilogue{to_cuda(args.out.data), args.out.stride, args.bias,
                                           args.activation};
  launch_gemv<GemvPairs>(ctx, gemv_args<T>(args.x, w, args.deferred), args.out.cols, epilogue);
  return true;
}

template bool gemv_gate_up(Context<Cuda>&, const GateUpArgs<BFloat16, Cuda>&);
template bool gemv_gate_up(Context<Cuda>&, const GateUpArgs<Float16, Cuda>&);

}  // namespace tandem::kernels
