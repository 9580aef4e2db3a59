// SPDX-License-Identifier: Apache-2.0
// What the matmul of 2 to 64 rows is given, and what it can multiply. Host and device.
#pragma once

#include <cstdint>

#include "kernels/add_norm.h"
#include "kernels/cuda/block_share.h"
#include "kernels/cuda/matmul_cache.h"
#include "kernels/cuda/peer_view.h"
#include "kernels/device/cuda/context.h"
#include "kernels/gate_up_act.h"
#include "kernels/qkv_project.h"

namespace tandem::kernels {

inline constexpr int kSkinnyMinRows = 2, kSkinnyMaxRows = 64;  // of x
inline constexpr int kSkinnyMaxReduceRows = 32;  // of x, where sums are added over ranks
inline constexpr int kSkinnyK = 64;              // elements: a line of 128 bytes
inline constexpr int kSkinnyCluster = 2;         // blocks that share x
inline constexpr int kSkinnyMaxDepth = 24;
inline constexpr int kSkinnyGroups = 2;      // warpgroups that multiply
inline constexpr int kSkinnyGroupRows = 64;  // of W: the M of wgmma

/// Two SMs make a TPC, so that clusters of two fill the GPU.
inline int skinny_blocks(int num_sms) { return num_sms / kSkinnyCluster * kSkinnyCluster; }

struct SkinnyArgs {
  int m, k;
  int boxes;               ///< Of W.
  BlockShare share;        ///< In boxes.
  int passes, pass_boxes;  ///< A block walks K once per pass, for so many of its boxes.
  bool beside_attention;   ///< Leaves it room on an SM.
  bool splits_k;           ///< The warpgroups take stages in turn: a pass has 64 rows at most.
  int early;               ///< Stages of W copied before the wait.
  int stages, subs;        ///< Stages of a pass; each is `subs` pieces of kSkinnyK of K.
  int w_stage_bytes, w_depth, x_stage_bytes, x_depth, shared_bytes;
  const float* square_sums;  ///< [m, parts] of the residual's rows
  int parts;                 ///< 0: no factor.
  float eps, inverse_k;
};

/// Fills passes, stages and rings from m, k and boxes. `fixed_bytes`: of shared memory beside them.
void skinny_plan(SkinnyArgs& args, int blocks, int box_rows, int columns, int fixed_bytes);

/// Whether the matmul can be done by a skinny kernel.
bool skinny_fits(const MatmulShape& shape, const void* x, const void* w);

/// y = cap(scale * x W^T) [m, n] of what fits; Out is T or float.
template <typename T, typename Out>
void skinny(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const T* w, TensorView<Out, Cuda> y,
            float scale, float softcap);
template <typename T>
void skinny_gate_up(Context<Cuda>& ctx, const GateUpArgs<T, Cuda>& args);
template <typename T>
void skinny_qkv(Context<Cuda>& ctx, const QkvArgs<T, Cuda>& args);
/// Returns whether the norm was left to the next op; else `normed` is not written.
template <typename T>
bool skinny_add_norm(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const T* w,
                     const AddNormArgs<T, Cuda>& args);
/// The same with the sum over ranks inside: `decode_reduce_add_norm`.
template <typename T>
bool skinny_reduce_add_norm(Context<Cuda>& ctx, const PeerView& peers, TensorView<const T, Cuda> x,
                            const T* w, const AddNormArgs<T, Cuda>& args, std::uint64_t* pushed_at);

}  // namespace tandem::kernels
