// SPDX-License-Identifier: Apache-2.0
#include "kernels/embed.h"

#include <algorithm>

#include "kernels/device/cpu/context.h"
#include "kernels/device/dtype.h"

namespace tandem::kernels {

namespace {

template <typename T>
void embed_row(const EmbedArgs<T, Cpu>& args, std::int64_t row) {
  const std::int64_t hidden = args.out.cols;
  T* out = args.out.row(row);
  const std::int64_t token = args.step->token_ids[row];
  const bool mine = token >= args.vocab_begin && token < args.vocab_end;
  if (!mine || args.step->positions[row] < 0) {
    std::fill(out, out + hidden, T(0.0f));
    return;
  }
  const std::int64_t index = token - args.vocab_begin;
  if (args.table != nullptr)
    std::copy_n(args.table + index * hidden, hidden, out);
  else
    args.head->copy_row(index, out);
  if (args.scale != 1.0f)
    for (std::int64_t i = 0; i < hidden; ++i) out[i] = T(static_cast<float>(out[i]) * args.scale);
}

}  // namespace

template <typename T>
void embed(Context<Cpu>& ctx, const EmbedArgs<T, Cpu>& args) {
#pragma omp parallel for if (args.step->num_tokens > 1)
  for (std::int64_t row = 0; row < args.step->num_tokens; ++row) {
    embed_row(args, row);
    if (args.zeros.data != nullptr) std::fill_n(args.zeros.row(row), args.zeros.cols, T(0.0f));
  }
  if (args.normed.data == nullptr) return;
  AddNormArgs<T, Cpu> norm;
  norm.residual = args.out;
  norm.next_norm = args.norm;
  norm.normed = args.normed;
  add_norm(ctx, norm);
}

template void embed(Context<Cpu>&, const EmbedArgs<float, Cpu>&);
template void embed(Context<Cpu>&, const EmbedArgs<BFloat16, Cpu>&);
template void embed(Context<Cpu>&, const EmbedArgs<Float16, Cpu>&);

}  // namespace tandem::kernels
