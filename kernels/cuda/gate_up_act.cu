// SPDX-License-Identifier: Apache-2.0
#include "kernels/gate_up_act.h"

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/load_floats.cuh"
#include "kernels/cuda/numeric.cuh"

namespace tandem::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsOfBlock = 2;  ///< So that a thread has 64 bytes under way.

/// Eight outputs per thread and row: `in` [rows, 2 * intermediate] interleaved by 16, `out` [rows,
/// intermediate].
template <typename E, GateActivation kActivation>
__global__ void __launch_bounds__(kThreads)
    activate_kernel(const E* in, std::int64_t in_stride, const float* bias, E* out,
                    std::int64_t out_stride, int rows, int intermediate) {
  constexpr int kN = 8;
  pdl_wait();
  pdl_trigger();
  const int column = (blockIdx.x * kThreads + threadIdx.x) * kN;
  if (column >= intermediate) return;
  const int gate_at =
      column / kGateUpInterleave * 2 * kGateUpInterleave + column % kGateUpInterleave;
  const int up_at = gate_at + kGateUpInterleave;
  const std::int64_t first = std::int64_t{blockIdx.y} * kRowsOfBlock;
  Vec<E, kN> gates[kRowsOfBlock], ups[kRowsOfBlock];
#pragma unroll
  for (int r = 0; r < kRowsOfBlock; ++r) {
    if (first + r >= rows) break;
    gates[r] = load_vec<E, kN>(in + (first + r) * in_stride + gate_at);
    ups[r] = load_vec<E, kN>(in + (first + r) * in_stride + up_at);
  }
  float gate_bias[kN] = {}, up_bias[kN] = {};
  if (bias != nullptr) {
    load_floats<kN>(bias + gate_at, gate_bias);
    load_floats<kN>(bias + up_at, up_bias);
  }
#pragma unroll
  for (int r = 0; r < kRowsOfBlock; ++r) {
    if (first + r >= rows) break;
    Vec<E, kN> result;
#pragma unroll
    for (int j = 0; j < kN; ++j)
      result.at[j] = from_float<E>(activate(kActivation, to_float(gates[r].at[j]) + gate_bias[j]) *
                                   (to_float(ups[r].at[j]) + up_bias[j]));
    store_vec(out + (first + r) * out_stride + column, result);
  }
}

template <typename E>
auto kernel_of(GateActivation activation) {
  switch (activation) {
    case GateActivation::kGeluTanh:
      return activate_kernel<E, GateActivation::kGeluTanh>;
    case GateActivation::kGelu:
      return activate_kernel<E, GateActivation::kGelu>;
    case GateActivation::kSilu:
      break;
  }
  return activate_kernel<E, GateActivation::kSilu>;
}

}  // namespace

template <typename T>
void gate_up_act(Context<Cuda>& ctx, const GateUpArgs<T, Cuda>& args) {
  if (args.out.rows == 0) return;
  if constexpr (sizeof(T) == 2)
    if (gemv_gate_up(ctx, args)) return;
  apply_deferred(ctx, args.deferred);
  matmul(ctx, args.x, *args.weight, args.scratch);
  const int intermediate = static_cast<int>(args.out.cols);
  TANDEM_ASSERT(intermediate % kGateUpInterleave == 0 && args.scratch.stride % 8 == 0 &&
                    args.out.stride % 8 == 0,
                "intermediate size ", intermediate);
  const dim3 grid((intermediate / 8 + kThreads - 1) / kThreads,
                  (args.out.rows + kRowsOfBlock - 1) / kRowsOfBlock);
  launch(ctx, dependent(grid, dim3(kThreads)), kernel_of<cuda_t<T>>(args.activation),
         to_cuda(args.scratch.data), args.scratch.stride, args.bias, to_cuda(args.out.data),
         args.out.stride, static_cast<int>(args.out.rows), intermediate);
}

template void gate_up_act<float>(Context<Cuda>&, const GateUpArgs<float, Cuda>&);
template void gate_up_act<BFloat16>(Context<Cuda>&, const GateUpArgs<BFloat16, Cuda>&);
template void gate_up_act<Float16>(Context<Cuda>&, const GateUpArgs<Float16, Cuda>&);

}  // namespace tandem::kernels
