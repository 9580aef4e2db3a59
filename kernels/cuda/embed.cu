// SPDX-License-Identifier: Apache-2.0
#include "kernels/embed.h"

#include "kernels/cuda/numeric.cuh"

namespace tandem::kernels {
namespace {

/// One block per row; N elements per load.
template <typename E, int N>
__global__ void embed_kernel(const std::int32_t* token_ids, const std::int32_t* positions,
                             const E* table, std::int64_t vocab_begin, std::int64_t vocab_end,
                             float scale, E* out, std::int64_t out_stride, int hidden) {
  pdl_wait();
  pdl_trigger();
  const std::int64_t token = token_ids[blockIdx.x];
  const bool here = positions[blockIdx.x] >= 0 && token >= vocab_begin && token < vocab_end;
  const E* from = table + (here ? token - vocab_begin : 0) * hidden;
  E* to = out + blockIdx.x * out_stride;
  for (int i = threadIdx.x * N; i < hidden; i += blockDim.x * N) {
    Vec<E, N> v{};
    if (here) {
      v = load_vec<E, N>(from + i);
#pragma unroll
      for (int j = 0; j < N; ++j) v.at[j] = from_float<E>(scale * to_float(v.at[j]));
    }
    store_vec(to + i, v);
  }
}

}  // namespace

template <typename T>
void embed(Context<Cuda>& ctx, const EmbedArgs<T, Cuda>& args) {
  using E = cuda_t<T>;
  constexpr int kN = kVecElements<E>;
  if (args.out.rows == 0) return;
  const int hidden = static_cast<int>(args.out.cols);
  const bool wide = hidden % kN == 0 && args.out.stride % kN == 0 && aligned_to(args.table, 16) &&
                    aligned_to(args.out.data, 16);
  // Not a dependent launch: so every later kernel of the step starts when the step's row arrays and
  // all earlier steps are complete, and may read those before its own wait.
  launch(ctx, {dim3(args.out.rows), dim3(256)}, wide ? embed_kernel<E, kN> : embed_kernel<E, 1>,
         args.step->token_ids, args.step->positions, to_cuda(args.table), args.vocab_begin,
         args.vocab_end, args.scale, to_cuda(args.out.data), args.out.stride, hidden);
}

template void embed<float>(Context<Cuda>&, const EmbedArgs<float, Cuda>&);
template void embed<BFloat16>(Context<Cuda>&, const EmbedArgs<BFloat16, Cuda>&);
template void embed<Float16>(Context<Cuda>&, const EmbedArgs<Float16, Cuda>&);

}  // namespace tandem::kernels
