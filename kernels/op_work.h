// SPDX-License-Identifier: Apache-2.0
// The least that each op has to move and to compute on its rank, counted from its arguments: every
// weight once, every activation once, keys and values once per sequence. Floors of the report of
// waits are made of this (bytes over the read rate, operations over the matmul rate).
#pragma once

#include "kernels/add_norm.h"
#include "kernels/attend.h"
#include "kernels/device/recorder.h"

namespace tandem::kernels {

/// y `[rows, N]` = x `[rows, K]` W `[N, K]`^T.
template <typename T, Device D>
OpWork matmul_work(std::int64_t rows, const LinearWeight<T, D>& weight) {
  const double n = static_cast<double>(weight.rows()), k = static_cast<double>(weight.cols());
  const double m = static_cast<double>(rows);
  OpWork work;
  work.bytes = static_cast<double>(weight.size_bytes()) + m * (n + k) * sizeof(T);
  work.flops = 2 * m * n * k;
  return work;
}

/// Keys and values of the step's rows, plus q and out.
template <typename T, Device D>
OpWork attend_work(const AttendArgs<T, D>& args) {
  OpWork work;
  const double q_width = static_cast<double>(args.num_q_heads) * args.kv.head_dim;
  work.bytes = 2.0 * args.step->num_tokens * q_width * sizeof(T);
  work.bytes_per_kv_token = 2.0 * args.kv.num_kv_heads * args.kv.head_dim * sizeof(T);
  work.flops_per_pair = 4 * q_width;
  work.window = args.window;
  work.rows = args.step->num_tokens;
  return work;
}

/// Rows of `width` elements that are read or written `times` times.
template <typename T>
OpWork rows_work(std::int64_t rows, std::int64_t width, int times) {
  OpWork work;
  work.bytes = static_cast<double>(rows * width * times) * sizeof(T);
  return work;
}

/// A message's bytes are told, but bound nothing: a collective has no floor of its own.
inline OpWork message_work(std::int64_t size_bytes) {
  OpWork work;
  work.bytes = static_cast<double>(size_bytes);
  return work;
}

/// Branch and residual in, residual and normed out.
template <typename T, Device D>
OpWork add_norm_work(const AddNormArgs<T, D>& args) {
  return rows_work<T>(args.residual.rows, args.residual.cols, args.branch.rows > 0 ? 4 : 3);
}

}  // namespace tandem::kernels
