// SPDX-License-Identifier: Apache-2.0
// Launches skinny matmuls: the tensor maps of W and x, and the choice of how many columns. Host
// code that only files with a skinny epilogue need.
#pragma once

#include "kernels/cuda/skinny.cuh"
#include "kernels/cuda/tensor_map.h"
#include "kernels/device/error.h"

namespace tandem::kernels {

/// W as `Rows` wants it, `boxes` at a time: 64 elements of K, 8 rows, `subs` pieces of K, groups.
template <typename T, typename Rows>
CUtensorMap skinny_weights(const Rows&, const T* w, const SkinnyArgs& args, int boxes) {
  const std::int64_t row = std::int64_t{args.k} * 2;
  constexpr int kGroups = Rows::kBoxRows / 8;
  return make_tensor_map(w, dtype_of<T>,
                         {{kSkinnyK, 0, kSkinnyK},
                          {8, row, 8},
                          {args.k / kSkinnyK, kSkinnyK * 2, args.subs},
                          {std::int64_t{args.boxes} * kGroups, 8 * row, boxes * kGroups},
                          {1, row, 1}});
}
template <typename T>
CUtensorMap skinny_weights(const SkinnyHalves& rows, const T* w, const SkinnyArgs& args, int) {
  const std::int64_t row = std::int64_t{args.k} * 2, rows_of_half = rows.boxes_of_head.by * 8;
  const std::int64_t half = rows_of_half * row;
  return make_tensor_map(w, dtype_of<T>,
                         {{kSkinnyK, 0, kSkinnyK},
                          {rows_of_half, row, 8},
                          {args.k / kSkinnyK, kSkinnyK * 2, args.subs},
                          {2, half, 2},
                          {args.boxes / rows.boxes_of_head.by, 2 * half, 1}});
}

template <int kColumns, typename T, typename Rows, typename Epilogue>
void launch_skinny_columns(Context<Cuda>& ctx, SkinnyArgs args, const TensorView<const T, Cuda>& x,
                           const T* w, const Epilogue& epilogue, const Rows& rows) {
  skinny_plan(args, skinny_blocks(ctx.num_sms()), Rows::kBoxRows, kColumns,
              static_cast<int>(sizeof(SkinnyShared<kColumns>)));
  const CUtensorMap x_map = make_tensor_map(x.data, dtype_of<T>,
                                            {{kSkinnyK, 0, kSkinnyK},
                                             {x.rows, x.stride * 2, 8},
                                             {args.k / kSkinnyK, kSkinnyK * 2, args.subs}});
  LaunchShape shape = dependent(dim3(skinny_blocks(ctx.num_sms())), dim3(kSkinnyThreads),
                                static_cast<std::size_t>(args.shared_bytes));
  shape.cluster = kSkinnyCluster;
  launch(ctx, shape, skinny_kernel<cuda_t<T>, kColumns, Rows, Epilogue>,
         skinny_weights(rows, w, args, args.pass_boxes), skinny_weights(rows, w, args, 1), x_map,
         args, rows, epilogue);
}

/// y = x W^T for what `skinny_fits` and no more than kMostRows of x. `boxes`: of W. `deferred`:
/// null, or of a norm whose weight is in x already.
template <typename T, typename Rows, int kMostRows = kSkinnyMaxRows, typename Epilogue>
void launch_skinny(Context<Cuda>& ctx, TensorView<const T, Cuda> x, const T* w, std::int64_t boxes,
                   const DeferredNorm<T, Cuda>* deferred, bool beside_attention,
                   const Epilogue& epilogue, const Rows& rows = {}) {
  SkinnyArgs args{};
  args.beside_attention = beside_attention;
  args.m = static_cast<int>(x.rows);
  args.k = static_cast<int>(x.cols);
  args.boxes = static_cast<int>(boxes);
  args.inverse_k = 1.0f / static_cast<float>(args.k);
  if (deferred != nullptr && deferred->parts > 0) {
    TANDEM_ASSERT(deferred->weighted, "the rows lack the weight of their norm");
    TANDEM_ASSERT(deferred->parts <= kSkinnyMaxParts, "a norm's squares are in too many parts");
    args.square_sums = deferred->square_sums;
    args.parts = deferred->parts;
    args.eps = deferred->norm.eps;
  }
  if (x.rows <= 16)
    launch_skinny_columns<16>(ctx, args, x, w, epilogue, rows);
  else if (kMostRows <= 32 || x.rows <= 32)
    launch_skinny_columns<32>(ctx, args, x, w, epilogue, rows);
  else if constexpr (kMostRows > 32)
    launch_skinny_columns<64>(ctx, args, x, w, epilogue, rows);
}

}  // namespace tandem::kernels
