// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemv_add_norm.cuh"
#include "kernels/cuda/skinny.h"

namespace tandem::kernels {
namespace {

/// What both kinds need, and a place for the norm that is left to the next op.
template <typename T>
GemvAddNorm<cuda_t<T>> make_epilogue(Context<Cuda>& ctx, const AddNormArgs<T, Cuda>& args) {
  GemvAddNorm<cuda_t<T>> epilogue{};
  epilogue.residual = to_cuda(args.residual.data);
  epilogue.residual_stride = args.residual.stride;
  epilogue.bias = args.bias;
  epilogue.scale = args.scale;
  epilogue.m = static_cast<int>(args.residual.rows);
  if (args.deferred == nullptr || args.next_norm.weight == nullptr) return epilogue;
  epilogue.square_sums = ctx.square_sums().data;
  constexpr bool kWeighs = kGemvScalesResults<cuda_t<T>>;
  if (kWeighs) {
    epilogue.weight = args.next_norm.weight;
    epilogue.weighted = to_cuda(args.normed.data);
    epilogue.weighted_stride = args.normed.stride;
  }
  *args.deferred = {args.residual,        args.normed,   args.next_norm,
                    epilogue.square_sums, ctx.num_sms(), kWeighs};
  return epilogue;
}

template <typename T>
bool can_add(const AddNormArgs<T, Cuda>& args) {
  return args.post_norm.weight == nullptr && args.residual.cols % 8 == 0 &&
         args.residual.stride % 8 == 0 && args.normed.stride % 8 == 0 &&
         aligned_to(args.residual.data, 16) && aligned_to(args.normed.data, 16);
}

/// The norm, if it was not left to the next op.
template <typename T>
void norm_now(Context<Cuda>& ctx, const AddNormArgs<T, Cuda>& args, bool deferred) {
  if (deferred || args.normed.data == nullptr) return;
  AddNormArgs<T, Cuda> norm_only = args;
  norm_only.branch = {};
  add_norm(ctx, norm_only);
}

}  // namespace

template <typename T>
bool gemv_add_norm(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const T* w,
                   TensorView<T, Cuda> scratch, const AddNormArgs<T, Cuda>& args) {
  if (!can_add(args)) return false;
  const DecodeKernel kernel = decode_kernel(ctx, matmul_shape(x, scratch), x.data, w, scratch.data);
  if (kernel == DecodeKernel::kLibrary) return false;
  if (kernel == DecodeKernel::kSkinny) {
    norm_now(ctx, args, skinny_add_norm(ctx, x, w, args));
    return true;
  }
  const auto epilogue = make_epilogue(ctx, args);
  launch_gemv<GemvRows>(ctx, gemv_args<T>(x, w, nullptr), args.residual.cols, epilogue);
  norm_now(ctx, args, epilogue.square_sums != nullptr);
  return true;
}

template <typename T>
DecodeKernel decode_reduce_kernel(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const T* w,
                                  TensorView<T, Cuda> scratch, const AddNormArgs<T, Cuda>& args) {
  const std::int64_t sums = args.residual.rows * args.residual.cols;
  if (!can_add(args) || ctx.num_sms() > kMaxSumsBlocks) return DecodeKernel::kLibrary;
  const MatmulShape shape = matmul_shape(x, scratch);
  if (sums <= PeerLayout::kSums && can_gemv(ctx, shape, x.data, w)) return DecodeKernel::kGemv;
  // Both count exchanges by blocks: all blocks take part in all of them.
  const bool same_blocks = skinny_blocks(ctx.num_sms()) == ctx.num_sms();
  return x.rows <= kSkinnyMaxReduceRows && sums <= PeerLayout::kSums * 2 && same_blocks &&
                 can_skinny(ctx, shape, x.data, w)
             ? DecodeKernel::kSkinny
             : DecodeKernel::kLibrary;
}

template <typename T>
void decode_reduce_add_norm(Context<Cuda>& ctx, DecodeKernel kernel, const PeerView& peers,
                            TensorView<const T, Cuda> x, const T* w,
                            const AddNormArgs<T, Cuda>& args, std::uint64_t* pushed_at) {
  if (kernel == DecodeKernel::kSkinny)
    return norm_now(ctx, args, skinny_reduce_add_norm(ctx, peers, x, w, args, pushed_at));
  GemvReduceAddNorm<cuda_t<T>> epilogue{};
  epilogue.add = make_epilogue(ctx, args);
  epilogue.exchange = {peers, pushed_at};
  epilogue.hidden = static_cast<int>(args.residual.cols);
  launch_gemv<GemvRows>(ctx, gemv_args<T>(x, w, nullptr), args.residual.cols, epilogue);
  norm_now(ctx, args, epilogue.add.square_sums != nullptr);
}

#define TANDEM_INSTANTIATE(T)                                                                     \
  template bool gemv_add_norm(Context<Cuda>&, TensorView<const T, Cuda>, const T*,                \
                              TensorView<T, Cuda>, const AddNormArgs<T, Cuda>&);                  \
  template DecodeKernel decode_reduce_kernel(Context<Cuda>&, TensorView<const T, Cuda>, const T*, \
                                             TensorView<T, Cuda>, const AddNormArgs<T, Cuda>&);   \
  template void decode_reduce_add_norm(Context<Cuda>&, DecodeKernel, const PeerView&,             \
                                       TensorView<const T, Cuda>, const T*,                       \
                                       const AddNormArgs<T, Cuda>&, std::uint64_t*);
TANDEM_INSTANTIATE(BFloat16)
TANDEM_INSTANTIATE(Float16)
#undef TANDEM_INSTANTIATE

}  // namespace tandem::kernels
