// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/skinny_launch.cuh"

namespace tandem::kernels {
namespace {

template <typename E>
struct SkinnyGateUp {
  E* out;
  std::int64_t out_stride;
  const float* bias;  ///< Interleaved like W, or null.
  GateActivation activation;
  __device__ void before_wait(int) const {}
  __device__ void load(int, int, int) const {}
  __device__ void operator()(int, int token, int column, const float (&gate)[8],
                             const float (&up)[8]) const {
    constexpr int kInterleave = kGateUpInterleave;
    const int at = column / kInterleave * 2 * kInterleave + column % kInterleave;
    Vec<E, 8> values;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float g = gate[j] + (bias == nullptr ? 0.0f : bias[at + j]);
      const float u = up[j] + (bias == nullptr ? 0.0f : bias[at + kInterleave + j]);
      values.at[j] = from_float<E>(activate_any(activation, g) * u);
    }
    store_vec(out + token * out_stride + column, values);
  }
  __device__ void finish(int, const SkinnyArgs&, float*) const {}
};

}  // namespace

template <typename T>
void skinny_gate_up(Context<Cuda>& ctx, const GateUpArgs<T, Cuda>& args) {
  const SkinnyGateUp<cuda_t<T>> epilogue{to_cuda(args.out.data), args.out.stride, args.bias,
                                         args.activation};
  launch_skinny<T, SkinnyPairs>(ctx, args.x, args.weight->data(),
                                args.weight->rows() / SkinnyPairs::kBoxRows, args.deferred, false,
                                epilogue);
}

template void skinny_gate_up(Context<Cuda>&, const GateUpArgs<BFloat16, Cuda>&);
template void skinny_gate_up(Context<Cuda>&, const GateUpArgs<Float16, Cuda>&);

}  // namespace tandem::kernels
