// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/work.h"

#include <algorithm>

namespace tandem::launch {

Work work_of(const runtime::ModelConfig& model, DType dtype, int ranks) {
  Work work;
  const double embedding = static_cast<double>(model.vocab_size * model.hidden_size);
  const double parameters = static_cast<double>(model.num_parameters());
  const auto heads_dim = static_cast<double>(model.head_dim * model.num_layers());
  // A decode step reads every matrix once, but only single rows of the embedding table.
  const double read = parameters - (model.tied_embeddings ? 0.0 : embedding);
  work.weight_bytes = read * static_cast<double>(size_bytes(dtype)) / ranks;
  work.matmul_parameters = (read - embedding) / ranks;
  work.kv_bytes_per_token = 2.0 * static_cast<double>(model.num_kv_heads) * heads_dim *
                            static_cast<double>(size_bytes(dtype)) / ranks;
  work.attention_flops_per_pair = 4.0 * static_cast<double>(model.num_heads) * heads_dim / ranks;
  return work;
}

Work work_of(const runtime::ModelConfig& model, DType dtype, int ranks,
             const runtime::LoadReport& load) {
  Work work = work_of(model, dtype, ranks);
  if (!load.kept_format.empty()) work.weight_bytes = static_cast<double>(load.step_weight_bytes);
  return work;
}

double floor_seconds(const Work& work, const ServedWork& served, const Ceilings& ceilings) {
  if (ceilings.read_gb_per_s <= 0 || ceilings.matmul_tflops <= 0) return 0;
  const double bytes_per_s = 1e9 * ceilings.read_gb_per_s, flops = 1e12 * ceilings.matmul_tflops;
  const double tokens = served.prefill_tokens + served.decode_tokens;
  return std::max(served.steps * work.weight_bytes / bytes_per_s,
                  2 * work.matmul_parameters * tokens / flops) +
         served.prefill_pairs * work.attention_flops_per_pair / flops +
         served.decode_context * work.kv_bytes_per_token / bytes_per_s;
}

}  // namespace tandem::launch
