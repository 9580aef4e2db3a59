// SPDX-License-Identifier: Apache-2.0
// The cost model against closed forms.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/device/error.h"
#include "launch/plan/plan_check.h"
#include "launch/plan/size_plan.h"
#include "support/config_error.h"
#include "support/model_shapes.h"

namespace tandem::launch {
namespace {

using testing::config_error;
using testing::smollm2;

/// 1000 GB/s, 100 TFLOP/s, 2 us an op, 100 GB/s and 4 us a message.
ClusterConfig round_cluster() {
  ClusterConfig cluster;
  cluster.name = "round";
  cluster.device = "cuda";
  cluster.ranks_per_host = 4;
  cluster.memory_gib = 1;
  cluster.memory_gbyte_per_s = 1000;
  cluster.bf16_tflops = 100;
  cluster.op_latency_us = 2;
  cluster.within_host_gbyte_per_s = 100;
  cluster.within_host_latency_us = 4;
  return cluster;
}

TEST(TimeCurve, GoesThroughItsPointsAndOn) {
  const TimeCurve curve({{400, 20}, {100, 10}});
  EXPECT_DOUBLE_EQ(curve.at(100), 10);
  EXPECT_DOUBLE_EQ(curve.at(400), 20);
  EXPECT_NEAR(curve.at(200), 10 * std::sqrt(2.0), 1e-12);
  EXPECT_DOUBLE_EQ(curve.at(800), 40);                     // in proportion above
  EXPECT_NEAR(curve.at(40), 10 - 60 * 10.0 / 300, 1e-12);  // fixed cost and bytes below
  EXPECT_DOUBLE_EQ(curve.at(0), 0);
  EXPECT_DOUBLE_EQ(TimeCurve({{100, 7}}).at(1), 7);
  EXPECT_THROW(TimeCurve({{0, 1}}), ConfigError);
}

TEST(DeviceRates, OfAClusterAreItsCeilings) {
  const DeviceRates rates = rates_of(round_cluster(), 4);
  const double bytes = 1 << 20;
  EXPECT_NEAR(rates.column_matmul.at(1, bytes), 2 + bytes / 1e6, 1e-9);
  EXPECT_NEAR(rates.row_matmul.at(64, bytes), 2 + bytes / 1e6, 1e-9);  // below 100 FLOP a byte
  EXPECT_NEAR(rates.row_matmul.at(1024, bytes), 2 + bytes * 1024 / 1e8, 1e-9);
  EXPECT_NEAR(rates.all_reduce.at(1 << 20), 4 + 2 * 0.75 * bytes / 1e5, 1e-9);
  EXPECT_TRUE(rates_of(round_cluster(), 1).all_reduce.empty());
  ClusterConfig slow = round_cluster();
  slow.memory_gbyte_per_s = 0;
  EXPECT_NE(config_error([&] { rates_of(slow, 1); }).find("add memory_gib, memory_gbyte_per_s"),
            std::string::npos);
  ClusterConfig alone = round_cluster();
  alone.within_host_gbyte_per_s = 0;
  EXPECT_NE(config_error([&] { rates_of(alone, 2); }).find("add within_host_gbyte_per_s"),
            std::string::npos);
}

TEST(DeviceRates, SurviveJson) {
  DeviceRates rates = rates_of(round_cluster(), 2);
  rates.name = "x";
  const std::string text = boost::json::serialize(
      boost::json::object{{"machine", {{"gpu", "NVIDIA H200"}}}, {"rates", to_json(rates)}});
  const DeviceRates back = rates_from_doctor("f.json", text);
  EXPECT_EQ(back.ranks, 2);
  EXPECT_EQ(back.machine.at("gpu"), "NVIDIA H200");
  EXPECT_DOUBLE_EQ(back.column_matmul.at(3, 5e6), rates.column_matmul.at(3, 5e6));
  EXPECT_DOUBLE_EQ(back.all_reduce.at(5e4), rates.all_reduce.at(5e4));
  for (const char* wrong : {"", "[]", "{}", "{\"rates\":{}}", "{\"rates\":3}"}) {
    const std::string said = config_error([&] { rates_from_doctor("f.json", wrong); });
    EXPECT_NE(said.find("make it with tandem doctor --rates FILE"), std::string::npos) << said;
  }
  rates.all_reduce = {};
  const std::string without =
      boost::json::serialize(boost::json::object{{"rates", to_json(rates)}});
  EXPECT_NE(config_error([&] {
              rates_from_doctor("f.json", without);
            }).find("f.json lacks some of the measured rates; make it with tandem doctor"),
            std::string::npos)
      << "two ranks without sums";
}

// Per layer: q and o 576*576, k and v 192*576, three MLP matrices 576*1536.
constexpr double kLayerWeights = 2.0 * 576 * 576 + 2.0 * 192 * 576 + 3.0 * 576 * 1536;
constexpr double kWeights = 30 * kLayerWeights + 49152.0 * 576;

TEST(CostModel, DecodeReadsWeightsAndKeysOnce) {
  const runtime::ModelConfig config = smollm2();
  const DeviceRates rates = rates_of(round_cluster(), 1);
  const double batch = 4, context = 100;
  const StepCost cost = decode_cost({config, DType::kBF16, 1}, rates, batch, context);
  const double kv_bytes = batch * context * 2 * 30 * 3 * 64 * 2;
  const double rest = 2 * batch * 576 * 2 + batch * 49152 * 4;  // embedding, logits
  EXPECT_DOUBLE_EQ(cost.bytes(), 2 * kWeights + kv_bytes + rest);
  EXPECT_DOUBLE_EQ(cost.flops(), 2 * batch * kWeights + batch * context * 4 * 30 * 9 * 64);
  EXPECT_EQ(cost.message_us(), 0);
  // Bandwidth decides everywhere: 5 ops a layer and 3 more of 2 us beside the bytes. Between the
  // points of a curve the power law is off by a little.
  EXPECT_NEAR(cost.us(), cost.bytes() / 1e6 + 2 * (5 * 30 + 3), 0.01 * cost.us());
  EXPECT_NEAR(cost.floor_us(rates), cost.bytes() / 1e6, 1e-6);
}

TEST(CostModel, RanksShareTheWeightsAndSendTwoMessagesALayer) {
  const runtime::ModelConfig config = smollm2();
  const DeviceRates rates = rates_of(round_cluster(), 3);
  const StepCost one = decode_cost({config, DType::kBF16, 1}, rates, 1, 1);
  const StepCost three = decode_cost({config, DType::kBF16, 3}, rates, 1, 1);
  double messages = 0, message_bytes = 0, weights = 0;
  for (const CostLine& line : three.lines) {
    messages += line.message_bytes > 0 ? line.count : 0;
    message_bytes += line.message_bytes;
    if (line.what.rfind("MLP", 0) == 0) weights += line.bytes;
  }
  EXPECT_EQ(messages, 2 * 30 + 2);
  EXPECT_EQ(message_bytes, (2 * 30 + 1) * 576 * 2 + 8);
  EXPECT_DOUBLE_EQ(weights, 30 * 3.0 * 576 * 512 * 2);
  EXPECT_LT(three.bytes(), one.bytes() / 2.9);
  EXPECT_NEAR(three.message_us(), 62 * 4, 10);
}

TEST(CostModel, PrefillOperationsDoNotDependOnTheSteps) {
  const runtime::ModelConfig config = smollm2();
  const DeviceRates rates = rates_of(round_cluster(), 1);
  const PlannedModel model{config, DType::kBF16, 1};
  const StepCost whole = prefill_cost(model, rates, 512, 0, true);
  const double pairs = 512.0 * 513 / 2;
  EXPECT_DOUBLE_EQ(whole.flops(),
                   2 * 512 * 30 * kLayerWeights + 2 * 49152.0 * 576 + pairs * 4 * 30 * 9 * 64);
  EXPECT_DOUBLE_EQ(prefill_cost(model, rates, 200, 0, false).flops() +
                       prefill_cost(model, rates, 312, 200, true).flops(),
                   whole.flops());
  EXPECT_DOUBLE_EQ(ttft_ms(model, rates, 512, 512), whole.us() / 1000);
  EXPECT_DOUBLE_EQ(ttft_ms(model, rates, 512, 200),
                   (prefill_cost(model, rates, 200, 0, false).us() +
                    prefill_cost(model, rates, 200, 200, false).us() +
                    prefill_cost(model, rates, 112, 400, true).us()) /
                       1000);
}

/// A third of the heads is a third of the time at the same length, though short prompts are slower
/// per operation.
TEST(CostModel, HeadsOfACpuRankCostTheSameEach) {
  const runtime::ModelConfig config = smollm2();
  DeviceRates rates = rates_of(round_cluster(), 3);
  rates.device = "cpu";
  rates.prefill_attention = TimeCurve({{1e6, 100}, {1e8, 4000}});
  const auto attention_us = [&](int ranks) {
    for (const CostLine& line :
         prefill_cost({config, DType::kBF16, ranks}, rates, 128, 0, true).lines)
      if (line.what == "attention") return line.us;
    return 0.0;
  };
  EXPECT_GT(attention_us(1), 0);
  EXPECT_DOUBLE_EQ(attention_us(3), attention_us(1) / 3);
}

TEST(SizePlan, MemoryOfARank) {
  const runtime::ModelConfig config = smollm2();
  ClusterConfig cluster = round_cluster();
  cluster.memory_gib = 4;
  Workload workload;
  workload.batch = 2;
  workload.input_len = 100;
  workload.output_len = 28;
  const SizePlan plan = plan_size(config, rates_of(cluster, 1), 1, workload);
  EXPECT_EQ(plan.problem, "");
  EXPECT_DOUBLE_EQ(plan.memory.kv_bytes_per_token, 2 * 30 * 3 * 64 * 2);
  EXPECT_DOUBLE_EQ(plan.memory.weight_bytes, 2 * kWeights + 4 * (60 * 576 + 576));
  // 2048 rows of 3 hidden + 2 q + 2 kv + 3 intermediate, 2 rows of 3 vocabularies; 1.5 GiB aside.
  EXPECT_DOUBLE_EQ(plan.memory.buffer_bytes, 2.0 * 2048 * (3 * 576 + 2 * 576 + 2 * 192 + 3 * 1536) +
                                                 2.0 * 3 * 49152 * 4 + 1.5 * (1 << 30));
  EXPECT_DOUBLE_EQ(plan.memory.cache_bytes,
                   0.9 * 4 * (1 << 30) - plan.memory.weight_bytes - plan.memory.buffer_bytes);
  const auto chunks = static_cast<std::int64_t>(plan.memory.cache_bytes / (23040 * 64)) - 1;
  EXPECT_EQ(plan.memory.cache_tokens, chunks * 64);
  EXPECT_EQ(plan.memory.largest_batch, chunks / 2);  // 128 tokens are two chunks
  EXPECT_EQ(plan.memory.largest_context, 8192);      // the model's own limit
  EXPECT_NE(plan_size(config, rates_of(round_cluster(), 1), 1, workload).problem, "");
}

SizePlan made(int ranks, double tpot_ms, const std::string& problem = "") {
  SizePlan plan;
  plan.ranks = ranks;
  plan.tpot_ms = tpot_ms;
  plan.tokens_per_s = 1000 / tpot_ms;
  plan.problem = problem;
  plan.decode.lines.push_back({"x", 1, 0, 0, 0, tpot_ms * 1000});
  return plan;
}

TEST(SizePlan, MoreRanksAreTakenWhileTheyPay) {
  const DeviceRates rates = rates_of(round_cluster(), 1);
  // 1 -> 2 brings 1.6 of 2, 2 -> 4 brings 1.25 of 2.
  EXPECT_EQ(choose_size({made(1, 8), made(2, 5), made(4, 4)}, rates).ranks, 2);
  // 4 against 1, when 2 does not pay: 2.8 of 4.
  EXPECT_EQ(choose_size({made(1, 8), made(2, 6), made(4, 2.9)}, rates).ranks, 4);
  EXPECT_EQ(choose_size({made(1, 8, "no"), made(2, 5)}, rates).ranks, 2);
  EXPECT_NE(config_error([&] { choose_size({made(1, 8, "too large")}, rates); }).find("too large"),
            std::string::npos);
}

TEST(PlanCheck, ErrorsRowByRow) {
  const std::string predicted =
      R"({"rows":[{"case":"a","metric":"tpot_ms","value":11},{"case":"b","metric":"tpot_ms","value":8}]})";
  const std::string measured =
      R"({"rows":[{"case":"a","metric":"tpot_ms","value":10},{"case":"c","metric":"tpot_ms","value":1}]})";
  const auto rows = check_predictions("p", predicted, {"r"}, {measured});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_NEAR(rows[0].error(), 0.1, 1e-12);
  EXPECT_TRUE(within_limit(rows));
  const std::string other = R"({"rows":[{"case":"b","metric":"tpot_ms","value":10}]})";
  EXPECT_FALSE(within_limit(check_predictions("p", predicted, {"r"}, {other})));
  EXPECT_NE(config_error([&] {
              check_predictions("p", predicted, {"r"}, {R"({"rows":[]})"});
            }).find("p predicts no case that the results have"),
            std::string::npos);
  EXPECT_NE(config_error([&] {
              check_predictions("p", "{", {"r"}, {other});
            }).find("p holds no rows of results"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem::launch
