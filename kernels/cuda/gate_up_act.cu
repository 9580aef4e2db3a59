// SPDX-License-Identifier: Apache-2.0
#include "kernels/gate_up_act.h"

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/numeric.cuh"

namespace tandem::kernels {
namespace {

/// Eight outputs per thread: `in` [rows, 2 * intermediate] interleaved by 16, `out` [rows,
/// intermediate].
template <typename E>
__global__ void activate_kernel(const E* in, std::int64_t in_stride, const float* bias,
                                GateActivation activation, E* out, std::int64_t out_stride,
                                int intermediate) {
  constexpr int kN = 8;
  pdl_wait();
  pdl_trigger();
  const int column = (blockIdx.x * blockDim.x + threadIdx.x) * kN;
  if (column >= intermediate) return;
  const int gate_at =
      column / kGateUpInterleave * 2 * kGateUpInterleave + column % kGateUpInterleave;
  const int up_at = gate_at + kGateUpInterleave;
  const E* row = in + blockIdx.y * in_stride;
  const auto gates = load_vec<E, kN>(row + gate_at), ups = load_vec<E, kN>(row + up_at);
  Vec<E, kN> result;
#pragma unroll
  for (int j = 0; j < kN; ++j) {
    float gate = to_float(gates.at[j]), up = to_float(ups.at[j]);
    if (bias != nullptr) {
      gate += bias[gate_at + j];
      up += bias[up_at + j];
    }
    result.at[j] = from_float<E>(activate(activation, gate) * up);
  }
  store_vec(out + blockIdx.y * out_stride + column, result);
}

}  // namespace

template <typename T>
void gate_up_act(Context<Cuda>& ctx, const GateUpArgs<T, Cuda>& args) {
  constexpr int kThreads = 128;
  if (args.out.rows == 0) return;
  if constexpr (sizeof(T) == 2)
    if (gemv_gate_up(ctx, args)) return;
  apply_deferred(ctx, args.deferred);
  matmul(ctx, args.x, *args.weight, args.scratch);
  const int intermediate = static_cast<int>(args.out.cols);
  TANDEM_ASSERT(intermediate % kGateUpInterleave == 0 && args.scratch.stride % 8 == 0 &&
                    args.out.stride % 8 == 0,
                "intermediate size ", intermediate);
  const dim3 grid((intermediate / 8 + kThreads - 1) / kThreads, args.out.rows);
  launch(ctx, dependent(grid, dim3(kThreads)), activate_kernel<cuda_t<T>>,
         to_cuda(args.scratch.data), args.scratch.stride, args.bias, args.activation,
         to_cuda(args.out.data), args.out.stride, intermediate);
}

template void gate_up_act<float>(Context<Cuda>&, const GateUpArgs<float, Cuda>&);
template void gate_up_act<BFloat16>(Context<Cuda>&, const GateUpArgs<BFloat16, Cuda>&);
template void gate_up_act<Float16>(Context<Cuda>&, const GateUpArgs<Float16, Cuda>&);

}  // namespace tandem::kernels
