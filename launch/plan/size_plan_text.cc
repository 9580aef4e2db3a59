// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "launch/plan/size_plan.h"
#include "launch/text_table.h"

namespace tandem::launch {
namespace {

namespace json = boost::json;

std::string gigabytes(double bytes) { return decimal(bytes / 1e9, bytes < 1e10 ? 2 : 1) + " GB"; }

/// What a seam waits for at these rates.
std::string waits_for(const CostLine& line, const DeviceRates& rates) {
  if (line.message_bytes > 0) return "messages";
  const double memory = line.bytes / rates.read_gb_per_s / 1e3;
  const double math = line.flops / rates.matmul_tflops / 1e6;
  if (std::max(memory, math) < 0.5 * line.us) return "start of ops, rates of small ops";
  return memory >= math ? "memory" : "arithmetic";
}

}  // namespace

std::string plan_table(const std::vector<SizePlan>& plans) {
  std::vector<std::vector<std::string>> rows{{"ranks", "weights", "buffers", "KV cache",
                                              "batch at most", "context at most", "TTFT ms",
                                              "TPOT ms", "floor ms", "tokens/s", "per rank", ""}};
  for (const SizePlan& plan : plans)
    rows.push_back(
        {std::to_string(plan.ranks), gigabytes(plan.memory.weight_bytes),
         gigabytes(plan.memory.buffer_bytes), gigabytes(plan.memory.cache_bytes),
         std::to_string(plan.memory.largest_batch), std::to_string(plan.memory.largest_context),
         decimal(plan.ttft_ms, 1), decimal(plan.tpot_ms, 2), decimal(plan.floor_ms, 2),
         decimal(plan.tokens_per_s, 1), decimal(plan.tokens_per_s / plan.ranks, 1), plan.problem});
  return text_table(rows);
}

std::string waits_table(const SizePlan& plan, const DeviceRates& rates) {
  std::vector<CostLine> lines = plan.decode.lines;
  std::stable_sort(lines.begin(), lines.end(),
                   [](const CostLine& a, const CostLine& b) { return a.us > b.us; });
  std::vector<std::vector<std::string>> rows{
      {"decode step", "ops", "us", "share", "MB read", "MFLOP", "KB sent", "waits for"}};
  for (const CostLine& line : lines)
    rows.push_back({line.what, decimal(line.count, 0), decimal(line.us, 1),
                    decimal(100 * line.us / plan.decode.us(), 1) + " %",
                    decimal(line.bytes / 1e6, 1), decimal(line.flops / 1e6, 1),
                    decimal(line.message_bytes / 1e3, 1), waits_for(line, rates)});
  return text_table(rows);
}

json::object to_json(const SizePlan& plan) {
  json::array lines;
  for (const CostLine& line : plan.decode.lines)
    lines.push_back(json::object{{"what", line.what},
                                 {"ops", line.count},
                                 {"bytes", line.bytes},
                                 {"flops", line.flops},
                                 {"message_bytes", line.message_bytes},
                                 {"us", line.us}});
  return {{"ranks", plan.ranks},
          {"fits", plan.problem.empty()},
          {"problem", plan.problem},
          {"weight_bytes", plan.memory.weight_bytes},
          {"buffer_bytes", plan.memory.buffer_bytes},
          {"cache_bytes", plan.memory.cache_bytes},
          {"kv_bytes_per_token", plan.memory.kv_bytes_per_token},
          {"cache_tokens", plan.memory.cache_tokens},
          {"largest_batch", plan.memory.largest_batch},
          {"largest_context", plan.memory.largest_context},
          {"ttft_ms", plan.ttft_ms},
          {"tpot_ms", plan.tpot_ms},
          {"floor_ms", plan.floor_ms},
          {"tokens_per_s", plan.tokens_per_s},
          {"tokens_per_s_per_rank", plan.tokens_per_s / plan.ranks},
          {"decode_step", std::move(lines)}};
}

}  // namespace tandem::launch
