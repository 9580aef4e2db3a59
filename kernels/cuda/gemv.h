// SPDX-License-Identifier: Apache-2.0
// The matmuls of up to 64 rows behind the seams, with what follows fused into their epilogues: by a
// streaming kernel for up to 8 rows (gemv.cuh), or by a skinny one (skinny.cuh), which is for more
// but is the faster one with 3 to 8 rows of a long K, too.
// Every function returns false, with nothing enqueued, when the shape is not one of its own or when
// `CudaOptions::decode_matmul` says cublaslt: the caller then takes the general path. T is a 2-byte
// type. All may be captured; none allocates.
#pragma once

#include "kernels/add_norm.h"
#include "kernels/cuda/decode_choice.h"
#include "kernels/cuda/matmul_cache.h"
#include "kernels/cuda/peer_view.h"
#include "kernels/device/cuda/context.h"
#include "kernels/gate_up_act.h"
#include "kernels/head.h"
#include "kernels/qkv_project.h"

namespace tandem::kernels {

inline constexpr int kGemvMaxRows = 8;  // of x

/// y = cap(scale * x W^T); Out is T or float.
template <typename T, typename Out>
bool gemv(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const T* w, TensorView<Out, Cuda> y,
          float scale = 1.0f, float softcap = 0.0f);

template <typename T>
bool gemv_gate_up(Context<Cuda>& ctx, const GateUpArgs<T, Cuda>& args);

/// `project_add_norm`; the next norm is left to the next op if that may be.
template <typename T>
bool gemv_add_norm(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const T* w,
                   TensorView<T, Cuda> scratch, const AddNormArgs<T, Cuda>& args);

/// The same with the sum over ranks inside, in rank order and in float: sums go to the other ranks
/// from the kernel that makes them, as floats (streaming) or rounded to T (skinny). Equal shapes
/// and kernels, and GPUs with as many SMs, on all ranks. `pushed_at` (device) gets the GPU's clock
/// when the first block's sums are on their way, or null.
template <typename T>
void decode_reduce_add_norm(Context<Cuda>& ctx, DecodeKernel kernel, const PeerView& peers,
                            TensorView<const T, Cuda> x, const T* w,
                            const AddNormArgs<T, Cuda>& args, std::uint64_t* pushed_at);
/// The kernel by which this rank can, kLibrary: none. Equal arguments; `scratch` is the plain
/// product's place. Not by timing, which may differ between ranks: a kernel less is worth more than
/// the difference of two matmuls, up to 32 rows (on two H200s 2.83 against 2.99 ms for a step of
/// Llama-3-8B; with 64 rows 3.92 against 3.49).
template <typename T>
DecodeKernel decode_reduce_kernel(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const T* w,
                                  TensorView<T, Cuda> scratch, const AddNormArgs<T, Cuda>& args);

/// `qkv_project` of heads without a norm that are rotated whole.
template <typename T>
bool gemv_qkv(Context<Cuda>& ctx, const QkvArgs<T, Cuda>& args);

/// `head_best` of the sampled rows x.
template <typename T>
bool gemv_head(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const HeadArgs<T, Cuda>& args,
               const ShardArgs<Cuda>& shard, TokenKey* best);

/// The matmul of x `[m, k]` into y `[m, n]` as tables of choices see it.
template <typename T, typename Out>
MatmulShape matmul_shape(const TensorView<const T, Cuda>& x, const TensorView<Out, Cuda>& y) {
  MatmulShape shape;
  shape.m = x.rows;
  shape.n = y.cols;
  shape.k = x.cols;
  shape.x_stride = x.stride;
  shape.y_stride = y.stride;
  shape.in = dtype_of<T>;
  shape.out = dtype_of<Out>;
  return shape;
}

/// Whether a kernel of ours can multiply this, and the option does not forbid it: up to 8 rows if
/// one SM holds x, or `skinny_fits`.
bool can_gemv(Context<Cuda>& ctx, const MatmulShape& shape, const void* x, const void* w);
bool can_skinny(Context<Cuda>& ctx, const MatmulShape& shape, const void* x, const void* w);
/// The kernel that multiplies this, as the option and the choice of the GPU say.
/// y is the plain product's place, written when the choice is made by timing.
DecodeKernel decode_kernel(Context<Cuda>& ctx, const MatmulShape& shape, const void* x,
                           const void* w, void* y);
/// The same for an op to which a norm may have been left: the library would need that norm as a
/// kernel more, so that the choice against it was made when the norm was left.
template <typename T>
DecodeKernel decode_kernel_with_norm(Context<Cuda>& ctx, const MatmulShape& shape, const void* x,
                                     const void* w, void* y,
                                     const DeferredNorm<T, Cuda>* deferred) {
  const bool due = deferred != nullptr && deferred->parts > 0;
  if (!due || deferred->weighted) {
    const DecodeKernel choice = decode_kernel(ctx, shape, x, w, y);
    if (!due || choice != DecodeKernel::kLibrary) return choice;
  }
  if (can_gemv(ctx, shape, x, w)) return DecodeKernel::kGemv;
  return deferred->weighted && can_skinny(ctx, shape, x, w) ? DecodeKernel::kSkinny
                                                            : DecodeKernel::kLibrary;
}
/// The plain product with one of ours, whatever the choice; false when it cannot.
bool launch_streaming(Context<Cuda>& ctx, DecodeKernel kernel, const MatmulShape& shape,
                      const void* x, const void* w, void* y);

}  // namespace tandem::kernels
