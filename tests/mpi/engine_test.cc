// SPDX-License-Identifier: Apache-2.0
// The engine (CPU or CUDA, see support/test_engine.h) on 1..n ranks against transformers' reference
// results of tiny random models (tests/fixtures/make_models.py): teacher-forced logits, greedy
// text, chunked prefill, several sequences in one step, one step ahead.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "parallel/shard.h"
#include "runtime/cache_plan.h"
#include "runtime/engine_config.h"
#include "runtime/scheduler.h"
#include "support/mpi_world.h"
#include "support/test_engine.h"

namespace tandem::runtime {
namespace {

namespace json = boost::json;

struct Case {
  std::vector<std::int32_t> prompt, greedy;
  std::vector<std::int64_t> best;  ///< Token with the best logit, after each token.
  std::vector<double> gaps;        ///< That logit minus the second best.
  std::vector<std::int64_t> positions;
  std::vector<std::vector<float>> logits;
};

std::filesystem::path folder(const std::string& name) {
  return std::filesystem::path(TANDEM_FIXTURES) / "models" / name;
}

std::vector<Case> read_cases(const std::string& name) {
  std::ifstream file(folder(name) / "reference.json");
  std::stringstream text;
  text << file.rdbuf();
  std::vector<Case> cases;
  const json::value document = json::parse(text.str());
  for (const json::value& item : document.at("cases").as_array())
    cases.push_back({json::value_to<std::vector<std::int32_t>>(item.at("prompt")),
                     json::value_to<std::vector<std::int32_t>>(item.at("greedy_tokens")),
                     json::value_to<std::vector<std::int64_t>>(item.at("argmax")),
                     json::value_to<std::vector<double>>(item.at("top2_gaps")),
                     json::value_to<std::vector<std::int64_t>>(item.at("logit_positions")),
                     json::value_to<std::vector<std::vector<float>>>(item.at("logits"))});
  return cases;
}

/// An engine over all ranks of the test program.
struct Job {
  comm::ControlPlane control;
  ModelConfig config;
  std::unique_ptr<Engine> engine;

  Job(const std::string& name, DType dtype, std::int32_t max_batched_tokens = 64,
      OverlapMode overlap = OverlapMode::kOff)
      : control(tandem::testing::world()), config(read_model_config(folder(name))) {
    const Checkpoint checkpoint = Checkpoint::open(folder(name));
    checkpoint.require_fits(config);
    EngineConfig sizes;
    sizes.dtype = dtype;
    sizes.max_model_len = 128;
    sizes.max_num_seqs = 8;
    sizes.max_num_batched_tokens = max_batched_tokens;
    sizes.kv_cache_bytes = 64 << 20;
    sizes.kv_segment_bytes = 1 << 16;
    sizes.overlap = overlap;
    engine = tandem::testing::make_engine(control, config, checkpoint, sizes);
  }

  /// The joined logits of the last step's only sample.
  std::vector<float> logits() {
    const parallel::Range mine =
        parallel::Shard(shard_shape(config), control.rank(), control.size()).vocab();
    const std::vector<float> part = tandem::testing::shard_logits(*engine, mine.size());
    const std::string bytes(reinterpret_cast<const char*>(part.data()),
                            part.size() * sizeof(float));
    std::vector<float> joined;
    for (const std::string& shard : control.all_gather(bytes)) {
      const auto* values = reinterpret_cast<const float*>(shard.data());
      joined.insert(joined.end(), values, values + shard.size() / sizeof(float));
    }
    return joined;
  }

  /// Runs requests through the scheduler, planned one step ahead, every rank deciding alike.
  std::vector<std::vector<std::int32_t>> generate(
      const std::vector<Request>& requests,
      std::vector<std::vector<kernels::TokenLogprob>>* prompt_logprobs = nullptr) {
    Scheduler scheduler({engine->limits(), true, {}});
    std::vector<std::vector<std::int32_t>> texts(requests.size());
    for (const Request& request : requests) scheduler.add(request);
    bool pending = false;
    while (!scheduler.idle()) {
      const BatchPlan plan = scheduler.plan();
      if (plan.num_tokens() > 0) engine->submit(plan);
      const bool submitted = plan.num_tokens() > 0;
      if (pending)
        for (const TokenEvent& event : scheduler.commit(engine->collect())) {
          if (event.token >= 0)
            texts[static_cast<std::size_t>(event.request)].push_back(event.token);
          if (prompt_logprobs != nullptr && !event.prompt_logprobs.empty())
            *prompt_logprobs = event.prompt_logprobs;
        }
      pending = submitted;
    }
    return texts;
  }
};

Request greedy(RequestId id, const Case& reference) {
  Request request;
  request.id = id;
  request.prompt = reference.prompt;
  request.params.max_tokens = static_cast<std::int32_t>(reference.greedy.size());
  request.params.ignore_eos = true;
  return request;
}

bool shardable(const std::string& name, int size) {
  const ModelConfig config = read_model_config(folder(name));
  return size <= parallel::max_tensor_parallel_size(shard_shape(config));
}

class EngineTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string why = tandem::testing::engine_missing(); !why.empty())
      GTEST_SKIP() << why;
    if (!shardable(GetParam(), tandem::testing::world().size()))
      GTEST_SKIP() << "the model has too few heads or columns for this many ranks";
  }
};

/// Typical size of a reference logit.
double logit_size(const Case& reference) {
  double sum = 0;
  for (const float value : reference.logits.back()) sum += value * value;
  return std::sqrt(sum / static_cast<double>(reference.logits.back().size()));
}

/// Gives prompt and greedy text token by token. Where there are reference logits, the engine's lie
/// within `bound`; everywhere its best token is that of transformers, unless the two best are
/// nearer than four times what the bound lets them move. Returns the largest distance.
double compare_logits(Job& job, const std::string& model, double bound) {
  double largest = 0;
  std::int32_t slot = 0;
  for (const Case& reference : read_cases(model)) {
    std::vector<std::int32_t> tokens = reference.prompt;
    tokens.insert(tokens.end(), reference.greedy.begin(), reference.greedy.end());
    const double near = 4 * bound * logit_size(reference);
    for (std::size_t p = 0; p < tokens.size(); ++p) {
      BatchPlan plan;
      if (p == 0) plan.inits.push_back({slot, {}, {}, {}, {}, {}});
      if (p == 0) plan.assigns.push_back({slot, 0, 1 + slot});
      plan.mapped_chunks = 2 + slot;
      plan.segments.push_back({slot, static_cast<std::int32_t>(p), {tokens[p]}, true, 0, {}});
      plan.max_kv_tokens = static_cast<std::int32_t>(p) + 1;
      job.engine->submit(plan);
      job.engine->collect();
      const std::vector<float> got = job.logits();
      if (reference.gaps[p] > near) {
        EXPECT_EQ(std::max_element(got.begin(), got.end()) - got.begin(), reference.best[p]) << p;
      }
      const auto wanted = std::find(reference.positions.begin(), reference.positions.end(),
                                    static_cast<std::int64_t>(p));
      if (wanted == reference.positions.end()) continue;
      largest = std::max(
          largest,
          tandem::testing::distance(
              got,
              reference.logits[static_cast<std::size_t>(wanted - reference.positions.begin())]));
    }
    ++slot;
  }
  EXPECT_LT(largest, bound) << model;
  return largest;
}

TEST_P(EngineTest, TeacherForcedLogitsEqualTransformers) {
  Job job(GetParam(), DType::kF32);
  compare_logits(job, GetParam(), 1e-4);
}

// bfloat16 keeps 8 bits: weights and the result of every seam are rounded by up to 2^-9 of their
// size. Two or three layers have about ten such roundings in a row each, whose errors add like
// noise: between 0.009 (olmo2) and 0.043 (smollm3) of the logits' length were seen.
constexpr double kBfloatBound = 0.06;

TEST_P(EngineTest, BfloatLogitsStayWithinTheBound) {
  Job job(GetParam(), DType::kBF16);
  const double largest = compare_logits(job, GetParam(), kBfloatBound);
  EXPECT_GT(largest, 1e-4) << "is this bfloat16 at all?";
}

TEST_P(EngineTest, GreedyTextsOfSeveralSequencesEqualTransformers) {
  Job job(GetParam(), DType::kF32);
  const std::vector<Case> cases = read_cases(GetParam());
  std::vector<Request> requests;
  for (std::size_t i = 0; i < cases.size(); ++i)
    requests.push_back(greedy(static_cast<RequestId>(i), cases[i]));
  const auto texts = job.generate(requests);
  for (std::size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(texts[i], cases[i].greedy) << i;
}

TEST_P(EngineTest, PrefillInPiecesGivesTheSameText) {
  Job job(GetParam(), DType::kF32, /*max_batched_tokens=*/8);
  const std::vector<Case> cases = read_cases(GetParam());
  EXPECT_EQ(job.generate({greedy(0, cases[0])})[0], cases[0].greedy);
}

// The prompt is what transformers gave greedily, so its reference logits say what each next token's
// log-probability is. Pieces of 8 tokens, and more scored rows than sequences.
TEST_P(EngineTest, LogprobsOfThePromptEqualTransformers) {
  Job job(GetParam(), DType::kF32, /*max_batched_tokens=*/11);
  const Case reference = read_cases(GetParam())[0];
  Request request = greedy(0, reference);
  request.prompt.insert(request.prompt.end(), reference.greedy.begin(), reference.greedy.end());
  request.params.max_tokens = 2;
  request.params.prompt_logprobs = 3;
  std::vector<std::vector<kernels::TokenLogprob>> scores;
  job.generate({request}, &scores);
  ASSERT_EQ(scores.size(), request.prompt.size() - 1);
  int compared = 0;
  for (std::size_t i = 0; i < reference.positions.size(); ++i) {
    const auto position = static_cast<std::size_t>(reference.positions[i]);
    if (position + 1 >= request.prompt.size()) continue;
    const std::vector<float>& logits = reference.logits[i];
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    const std::vector<kernels::TokenLogprob>& got = scores[position];
    ASSERT_EQ(got.size(), 4u);
    EXPECT_EQ(got[0].id, request.prompt[position + 1]);
    EXPECT_EQ(logits[static_cast<std::size_t>(got[1].id)],
              *std::max_element(logits.begin(), logits.end()));
    for (const kernels::TokenLogprob& entry : got)
      EXPECT_NEAR(entry.logprob, logits[static_cast<std::size_t>(entry.id)] - std::log(sum), 2e-4);
    EXPECT_GE(got[1].logprob, got[2].logprob);
    EXPECT_GE(got[2].logprob, got[3].logprob);
    ++compared;
  }
  EXPECT_GE(compared, 3);
}

/// Prefills all cases in one step and returns the logits of the last one's last token.
std::vector<float> prefill_at_once(Job& job, const std::vector<Case>& cases) {
  BatchPlan plan;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto slot = static_cast<std::int32_t>(i);
    plan.inits.emplace_back().slot = slot;
    plan.assigns.push_back({slot, 0, 1 + slot});
    PrefillSegment& segment = plan.segments.emplace_back();
    segment.slot = slot;
    segment.tokens = cases[i].prompt;
    segment.sample = i + 1 == cases.size();
    plan.max_kv_tokens =
        std::max(plan.max_kv_tokens, static_cast<std::int32_t>(cases[i].prompt.size()));
  }
  plan.mapped_chunks = static_cast<std::int32_t>(cases.size()) + 1;
  job.engine->submit(plan);
  job.engine->collect();
  return job.logits();
}

// The same sums in the same order: only matmuls of other numbers of rows may round otherwise.
TEST_P(EngineTest, OverlappedHalvesGiveTheSameNumbers) {
  const std::vector<Case> cases = read_cases(GetParam());
  std::vector<float> plain, overlapped;
  {
    Job job(GetParam(), DType::kF32, 256);
    plain = prefill_at_once(job, cases);
  }
  Job job(GetParam(), DType::kF32, 256, OverlapMode::kOn);
  overlapped = prefill_at_once(job, cases);
  ASSERT_EQ(plain.size(), overlapped.size());
  for (std::size_t i = 0; i < plain.size(); ++i)
    ASSERT_NEAR(plain[i], overlapped[i], 1e-5f * (1.0f + std::fabs(plain[i]))) << i;
  // Steps that mix decode rows with cut prompts, through the scheduler.
  std::vector<Request> requests;
  for (std::size_t i = 0; i < cases.size(); ++i)
    requests.push_back(greedy(static_cast<RequestId>(i), cases[i]));
  Job pieces(GetParam(), DType::kF32, /*max_batched_tokens=*/9, OverlapMode::kOn);
  const auto texts = pieces.generate(requests);
  for (std::size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(texts[i], cases[i].greedy) << i;
}

/// Rank 0 alone is short of memory; all ranks leave with its numbers.
TEST(EngineMemory, AModelLargerThanTheFreeMemoryIsRefusedBeforeItIsRead) {
  comm::ControlPlane control(tandem::testing::world());
  const ModelConfig config = read_model_config(folder("llama-9q3kv"));
  const Checkpoint checkpoint = Checkpoint::open(folder("llama-9q3kv"));
  EngineConfig sizes;
  sizes.dtype = DType::kF32;
  sizes.host_bytes = control.rank() == 0 ? 50'000 : 1 << 30;
  LoadReport report;
  try {
    make_cpu_engine(control, config, checkpoint, sizes, &report);
    FAIL() << "was loaded";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("llama-9q3kv needs 1 MB of memory for its weights on this rank"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("free memory is 1 MB"), std::string::npos) << text;
  }
  EXPECT_EQ(checkpoint.bytes_read(), 0);
}

INSTANTIATE_TEST_SUITE_P(Models, EngineTest,
                         ::testing::Values("llama-9q3kv", "llama-14q2kv", "llama-bf16",
                                           "llama-dynamic", "llama-yarn", "mistral", "qwen2",
                                           "qwen3", "phi3", "granite", "olmo2", "gemma2", "gemma3",
                                           "smollm3"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace tandem::runtime
