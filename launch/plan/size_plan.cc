// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/size_plan.h"

#include <algorithm>

#include "kernels/device/error.h"
#include "kernels/step_view.h"
#include "launch/text_table.h"
#include "runtime/cache_plan.h"
#include "runtime/model_report.h"

namespace tandem::launch {
namespace {

/// A rank more must bring at least this share of what it would bring if scaling were linear.
constexpr double kWorthwhile = 0.5;

MemoryPlan plan_memory(const runtime::ModelConfig& config, const DeviceRates& rates, int ranks,
                       const Workload& workload) {
  const runtime::ModelReport report = runtime::report_model(config, ranks, workload.dtype);
  MemoryPlan plan;
  double kv_of_all = 0;
  for (const runtime::RankReport& rank : report.ranks) {
    plan.weight_bytes = std::max(plan.weight_bytes, double(rank.weight_bytes));
    plan.kv_bytes_per_token = std::max(plan.kv_bytes_per_token, double(rank.kv_bytes_per_token));
    kv_of_all += double(rank.kv_bytes_per_token);
  }
  plan.duplicated_kv = kv_of_all / (kv_of_all - double(report.duplicated_kv_bytes_per_token));
  runtime::EngineConfig sizes;
  sizes.dtype = workload.dtype;
  sizes.max_num_seqs = workload.batch;
  sizes.max_num_batched_tokens = std::max(workload.step_tokens, workload.batch);
  const parallel::Shard shard(runtime::shard_shape(config), 0, ranks);
  plan.buffer_bytes = double(runtime::step_buffer_bytes(config, shard, sizes, ranks));
  const bool cuda = rates.device == "cuda";
  if (cuda) plan.buffer_bytes += double(runtime::kCudaReserveBytes);
  const double left = (cuda ? workload.memory_share : 1.0) * rates.memory_bytes -
                      plan.weight_bytes - plan.buffer_bytes;
  // CPU ranks give a quarter of the memory to the cache by default.
  plan.cache_bytes = std::max(0.0, cuda ? left : std::min(left, rates.memory_bytes / 4));
  // Chunk 0 is reserved for padding rows.
  const auto chunks = static_cast<std::int64_t>(plan.cache_bytes /
                                                (plan.kv_bytes_per_token * kernels::kChunkTokens));
  const std::int64_t usable = std::max<std::int64_t>(chunks - 1, 0);
  const std::int64_t length = std::int64_t{workload.input_len} + workload.output_len;
  plan.cache_tokens = usable * kernels::kChunkTokens;
  plan.largest_batch = usable / ((length + kernels::kChunkTokens - 1) / kernels::kChunkTokens);
  plan.largest_context =
      std::min(usable / workload.batch * kernels::kChunkTokens, config.max_position);
  return plan;
}

}  // namespace

SizePlan plan_size(const runtime::ModelConfig& config, const DeviceRates& rates, int ranks,
                   const Workload& workload) {
  SizePlan plan;
  plan.ranks = ranks;
  plan.memory = plan_memory(config, rates, ranks, workload);
  const PlannedModel model{config, workload.dtype, ranks};
  plan.decode =
      decode_cost(model, rates, workload.batch, workload.input_len + workload.output_len / 2.0);
  plan.tpot_ms = plan.decode.us() / 1000;
  plan.floor_ms = plan.decode.floor_us(rates) / 1000;
  plan.ttft_ms = ttft_ms(model, rates, workload.input_len, workload.step_tokens);
  plan.tokens_per_s = workload.batch * 1000.0 / plan.tpot_ms;
  if (plan.memory.cache_tokens == 0)
    plan.problem = "the weights do not fit";
  else if (plan.memory.largest_batch < workload.batch)
    plan.problem = concat("room for a batch of ", plan.memory.largest_batch, " only");
  return plan;
}

Choice choose_size(const std::vector<SizePlan>& plans, const DeviceRates& rates) {
  std::vector<const SizePlan*> fit;
  for (const SizePlan& plan : plans)
    if (plan.problem.empty()) fit.push_back(&plan);
  TANDEM_REQUIRE(!fit.empty(), "the model fits on no number of ranks that was asked for (",
                 plans.back().ranks,
                 plans.back().ranks == 1 ? " rank: " : " ranks: ", plans.back().problem,
                 "); plan more ranks, a smaller --batch or --input-len, or another cluster");
  Choice choice;
  const SizePlan* chosen = fit.front();
  for (std::size_t i = 1; i < fit.size(); ++i) {
    const double gain = chosen->tpot_ms / fit[i]->tpot_ms;
    const double linear = double(fit[i]->ranks) / chosen->ranks;
    const double share = (gain - 1) / (linear - 1);
    const bool worthwhile = share >= kWorthwhile;
    std::string why = concat(fit[i]->ranks, " ranks make a token ", decimal(gain, 2),
                             " times as fast as ", chosen->ranks, " (linear: ", decimal(linear, 2),
                             "): ", worthwhile ? "worth it" : "not worth it");
    if (fit[i]->ranks > 1)
      why += concat("; all-reduces take ",
                    decimal(100 * fit[i]->decode.message_us() / fit[i]->decode.us(), 0),
                    " % of the step");
    choice.reasons.push_back(why);
    if (worthwhile) chosen = fit[i];
  }
  choice.ranks = chosen->ranks;
  const auto per_rank = [](const SizePlan* plan) { return plan->tokens_per_s / plan->ranks; };
  const SizePlan* cheapest = *std::max_element(
      fit.begin(), fit.end(), [&](auto* a, auto* b) { return per_rank(a) < per_rank(b); });
  choice.reasons.push_back(concat("most tokens per rank: ", cheapest->ranks,
                                  cheapest->ranks == 1 ? " rank" : " ranks", " (",
                                  decimal(per_rank(cheapest), 1), " tokens/s each)"));
  if (chosen->memory.duplicated_kv > 1)
    choice.reasons.push_back(
        concat("the KV heads do not divide over ", chosen->ranks, " ranks: a key or value is held ",
               decimal(chosen->memory.duplicated_kv, 2),
               " times on average, so more ranks shorten reading them less (Pope et al. 2022, "
               "3.3)"));
  // Where reading weights takes as long as multiplying by them (Pope et al. 2022, section 2).
  const double balance = rates.matmul_tflops * 1e3 / rates.read_gb_per_s;
  choice.reasons.push_back(concat("up to a batch of about ", decimal(balance, 0),
                                  " reading the weights takes longer than multiplying by them: "
                                  "larger batches cost little per token (Pope et al. 2022, 2)"));
  return choice;
}

}  // namespace tandem::launch
