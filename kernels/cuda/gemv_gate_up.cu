// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/gemm_narrow.cuh"

namespace tandem::kernels {
namespace {

/// A unit is one column of the result: its gate row and its up row are summed in the same tile.
template <typename E>
struct GateUpEpilogue {
  E* out;
  std::int64_t out_stride;
  const float* bias;
  GateActivation activation;
  __device__ void operator()(int column, int unit, float gate, float up) const {
    if (bias != nullptr) {
      gate += bias[GemvPairs::row(unit, 0)];
      up += bias[GemvPairs::row(unit, 8)];
    }
    out[column * out_stride + unit] = from_float<E>(activate(activation, gate) * up);
  }
  __device__ void finish(int, int, float*) const {}
};

}  // namespace

template <typename T>
bool gemv_gate_up(Context<Cuda>& ctx, const GateUpArgs<T, Cuda>& args) {
  const T* w = args.weight->data();
  if (!streams_weights(ctx, matmul_shape(args.x, args.scratch), args.x.data, w, args.scratch.data))
    return false;
  const GateUpEpilogue<cuda_t<T>> epilogue{to_cuda(args.out.data), args.out.stride, args.bias,
                                           args.activation};
  if (!gemv_fits(args.x.rows, args.x.cols))
    return launch_narrow_for<NarrowPairs>(ctx, to_cuda(args.x.data), args.x.stride, args.x.rows,
                                          to_cuda(w), args.out.cols, args.x.cols, epilogue);
  launch_gemv<GemvPairs>(ctx, to_cuda(args.x.data), args.x.stride, args.x.rows, to_cuda(w),
                         args.out.cols, args.x.cols, epilogue);
  return true;
}

template bool gemv_gate_up(Context<Cuda>&, const GateUpArgs<BFloat16, Cuda>&);
template bool gemv_gate_up(Context<Cuda>&, const GateUpArgs<Float16, Cuda>&);

}  // namespace tandem::kernels
