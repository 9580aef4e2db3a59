// SPDX-License-Identifier: Apache-2.0
// Many steps of a real engine (CPU or CUDA, see support/test_engine.h) on all ranks, with requests
// of every kind at random, some cancelled, and a cache that grows under them until sequences are
// preempted: no rank carries out another plan, samples other tokens or grows its cache elsewhere,
// and requests with a reference get its text. TANDEM_SOAK_STEPS sets the number of decode steps:
//   TANDEM_SOAK_STEPS=10000 mpirun -n 8 mpi_cuda_tests --gtest_filter='EngineSoak.*'
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>

#include "kvcache/kv_cache.h"
#include "parallel/shard.h"
#include "runtime/engine_loop.h"
#include "runtime/model_report.h"
#include "support/model_shapes.h"
#include "support/mpi_world.h"
#include "support/test_engine.h"

namespace tandem::runtime {
namespace {

using Tokens = std::vector<std::int32_t>;
using Random = std::mt19937;

std::int32_t between(Random& random, std::int32_t low, std::int32_t high) {
  return std::uniform_int_distribution<std::int32_t>(low, high)(random);
}

/// Passes everything on and remembers what this rank was told and gave. `two_in_flight`: steps
/// overlap, as on a GPU, also on an engine that has ended one before the next is there.
class Witness : public Engine {
 public:
  Witness(std::unique_ptr<Engine> engine, bool two_in_flight)
      : engine_(std::move(engine)), limits_(engine_->limits()) {
    limits_.synchronous = limits_.synchronous && !two_in_flight;
  }

  const EngineLimits& limits() const override { return limits_; }
  void submit(const BatchPlan& plan) override {
    if (!plan.decode_slots.empty()) ++decode_steps_;
    if (plan.mapped_chunks > std::max(mapped_, limits().mapped_chunks)) {
      ++growths_;
      add(plan.step, grown_);
      add(plan.mapped_chunks, grown_);
    }
    mapped_ = plan.mapped_chunks;
    engine_->submit(plan);
  }
  StepOutput collect() override {
    StepOutput output = engine_->collect();
    for (const std::int32_t token : output.tokens) add(token, sampled_);
    return output;
  }

  int decode_steps() const { return decode_steps_; }
  int growths() const { return growths_; }
  std::string text() const {
    return concat(decode_steps_, " decode steps, ", growths_, " growths to ", mapped_,
                  " chunks, digests ", grown_, " and ", sampled_);
  }

 private:
  static void add(std::int64_t value, std::uint64_t& digest) {
    digest = (digest ^ static_cast<std::uint64_t>(value)) * 0xff51afd7ed558ccdull;
    digest ^= digest >> 29;
  }

  std::unique_ptr<Engine> engine_;
  EngineLimits limits_;
  int decode_steps_ = 0, growths_ = 0;
  std::int32_t mapped_ = 0;
  /// One for plans and one for tokens: rank 0 may collect a step before it has the next plan,
  /// others collect it behind that one.
  std::uint64_t grown_ = 1, sampled_ = 1;
};

struct Reference {
  Tokens prompt, answer;
};

std::vector<Reference> read_references(const std::filesystem::path& folder) {
  std::ifstream file(folder / "reference.json");
  std::stringstream text;
  text << file.rdbuf();
  std::vector<Reference> references;
  const boost::json::value document = boost::json::parse(text.str());
  for (const auto& item : document.at("cases").as_array())
    references.push_back({boost::json::value_to<Tokens>(item.at("prompt")),
                          boost::json::value_to<Tokens>(item.at("greedy_tokens"))});
  return references;
}

/// Rank 0's side: a new request for each that ends, and over the first half of the steps more and
/// more of them at once, so that the cache grows under those that run.
class Load {
 public:
  Load(EngineLoop& loop, const Witness& witness, std::int32_t vocab,
       std::vector<Reference> references, int steps)
      : loop_(loop),
        witness_(witness),
        vocab_(vocab),
        references_(std::move(references)),
        steps_(steps) {
    for (Tokens& prefix : prefixes_) prefix = tokens(130);
  }

  void run() {
    begin();
    loop_.run_until_idle();
  }

  int ended = 0, cancelled = 0, compared = 0;

 private:
  static constexpr int kAtOnce = 24;  // more than the engine has slots

  struct Running {
    RequestId id = -1;
    int left = 1;       ///< Samples.
    int cancel_at = 0;  ///< Tokens after which the client leaves; 0: it stays.
    int received = 0;
    const Reference* reference = nullptr;
    Tokens answer;
  };

  Tokens tokens(std::int32_t count) {
    Tokens made;
    while (static_cast<std::int32_t>(made.size()) < count)
      made.push_back(between(random_, 3, vocab_ - 1));
    return made;
  }

  Request make_request(Running& running) {
    Request request;
    SamplingParams& params = request.params;
    if (!references_.empty() && between(random_, 0, 3) == 0) {
      running.reference = &references_[static_cast<std::size_t>(
          between(random_, 0, static_cast<std::int32_t>(references_.size()) - 1))];
      request.prompt = running.reference->prompt;
      params.max_tokens = static_cast<std::int32_t>(running.reference->answer.size());
      params.ignore_eos = true;
      return request;
    }
    if (between(random_, 0, 2) == 0) {
      const Tokens& prefix = prefixes_[static_cast<std::size_t>(between(random_, 0, 2))];
      request.prompt.assign(prefix.begin(), prefix.begin() + between(random_, 1, 130));
    }
    const Tokens rest = tokens(between(random_, 1, 40));
    request.prompt.insert(request.prompt.end(), rest.begin(), rest.end());
    params.max_tokens = between(random_, 1, 80);
    params.ignore_eos = between(random_, 0, 1) == 0;
    params.seed = random_();
    if (between(random_, 0, 1) == 0)
      params.temperature = 0.1f * static_cast<float>(between(random_, 5, 15));
    if (between(random_, 0, 3) == 0) params.top_k = between(random_, 1, 50);
    if (between(random_, 0, 3) == 0) params.top_p = 0.9f;
    if (between(random_, 0, 5) == 0) params.min_p = 0.05f;
    if (between(random_, 0, 5) == 0) params.repetition_penalty = 1.2f;
    if (between(random_, 0, 5) == 0) params.presence_penalty = 0.5f;
    if (between(random_, 0, 5) == 0) params.logit_bias = {{5, 3.0f}, {9, -100.0f}};
    if (between(random_, 0, 5) == 0) params.logprobs = between(random_, 0, 5);
    if (between(random_, 0, 7) == 0) params.prompt_logprobs = 2;
    if (between(random_, 0, 7) == 0) params.stop_token_ids = tokens(3);
    if (between(random_, 0, 7) == 0) params.n = 3;
    if (between(random_, 0, 4) == 0) running.cancel_at = between(random_, 1, 30);
    return request;
  }

  void begin() {
    const auto running = std::make_shared<Running>();
    Request request = make_request(*running);
    running->left = request.params.n;
    running->id = loop_.submit(
        std::move(request), [this, running](const TokenEvent& event) { accept(*running, event); });
  }

  void accept(Running& running, const TokenEvent& event) {
    if (running.left == 0) return;  // cancelled; the last tokens may still come
    if (event.token >= 0) {
      ++running.received;
      running.answer.push_back(event.token);
    }
    if (event.finish != FinishReason::kNone) --running.left;
    if (running.left > 0 && running.received == running.cancel_at) {
      loop_.cancel(running.id);
      running.left = 0;
      ++cancelled;
    }
    if (at_once_ < kAtOnce && witness_.decode_steps() * 2 * kAtOnce > steps_ * at_once_) {
      ++at_once_;
      begin();
    }
    if (running.left > 0) return;
    ++ended;
    if (running.reference != nullptr) {
      ++compared;
      EXPECT_EQ(running.answer, running.reference->answer) << "request " << running.id;
    }
    if (witness_.decode_steps() < steps_) begin();
  }

  EngineLoop& loop_;
  const Witness& witness_;
  std::int32_t vocab_;
  std::vector<Reference> references_;
  int steps_;
  int at_once_ = 1;
  Random random_{1};
  Tokens prefixes_[3];
};

class EngineSoak : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = tandem::testing::engine_missing(); !why.empty())
      GTEST_SKIP() << why;
  }

  static int steps(int otherwise) {
    const char* text = std::getenv("TANDEM_SOAK_STEPS");
    return text == nullptr ? otherwise : std::atoi(text);
  }

  /// Of a chunk of the cache on the rank with most heads.
  std::int64_t chunk_bytes(const ModelConfig& model, DType dtype) {
    const parallel::Shard shard(shard_shape(model), control_.rank(), control_.size());
    const kvcache::KvGeometry geometry{static_cast<std::int32_t>(model.num_layers()),
                                       static_cast<std::int32_t>(shard.kv_heads().size()),
                                       static_cast<std::int32_t>(model.head_dim),
                                       static_cast<std::int32_t>(size_bytes(dtype))};
    return control_.max(geometry.chunk_bytes());
  }

  /// With a cache of fewer chunks than the sequences want, that grows by two at a time.
  void soak(const ModelConfig& model, const Checkpoint& checkpoint, DType dtype,
            std::vector<Reference> references, int steps, bool two_in_flight = false) {
    const std::int64_t chunk = chunk_bytes(model, dtype);
    EngineConfig config;
    config.dtype = dtype;
    config.max_model_len = 256;
    config.max_num_seqs = 16;
    config.max_num_batched_tokens = 64;
    config.kv_cache_bytes = 20 * chunk;
    config.kv_segment_bytes = 2 * chunk;
    Witness witness(tandem::testing::make_engine(control_, model, checkpoint, config),
                    two_in_flight);
    EngineLoop loop(control_, witness, SchedulerConfig{witness.limits(), true, model.eos_ids});
    if (control_.rank() != 0) {
      loop.follow();
    } else {
      Load load(loop, witness, static_cast<std::int32_t>(model.vocab_size), std::move(references),
                steps);
      load.run();
      const SchedulerStats stats = loop.stats().scheduler;
      loop.close();
      EXPECT_EQ(stats.used_chunks, 0);
      EXPECT_GT(stats.prefix_hits_tokens, 0);
      EXPECT_GT(stats.preemptions, 0);
      EXPECT_GT(load.cancelled, 0);
      std::printf(
          "%d ranks: %s; %d requests, %d cancelled, %d with a reference, %lld preemptions\n",
          control_.size(), witness.text().c_str(), load.ended, load.cancelled, load.compared,
          static_cast<long long>(stats.preemptions));
    }
    EXPECT_GE(witness.decode_steps(), steps);
    EXPECT_GE(witness.growths(), 4);
    const std::vector<std::string> seen = control_.all_gather(witness.text());
    for (std::size_t r = 1; r < seen.size(); ++r) EXPECT_EQ(seen[r], seen[0]) << "rank " << r;
  }

  static std::filesystem::path folder(const char* model) {
    return std::filesystem::path(TANDEM_FIXTURES) / "models" / model;
  }

  comm::ControlPlane control_{tandem::testing::world()};
};

TEST_F(EngineSoak, TextsOfReferencesAmongRequestsOfAllKinds) {
  for (const char* name : {"llama-9q3kv", "llama-14q2kv"}) {
    const ModelConfig model = read_model_config(folder(name));
    if (control_.size() > parallel::max_tensor_parallel_size(shard_shape(model))) continue;
    return soak(model, Checkpoint::open(folder(name)), DType::kF32, read_references(folder(name)),
                steps(300));
  }
  GTEST_SKIP() << "the models have too few heads or columns for this many ranks";
}

/// In bfloat16 and in shapes that all fast kernels take, where there are such.
TEST_F(EngineSoak, FastShapesWithTwoStepsInFlight) {
  ModelConfig config = tandem::testing::with_fast_shapes(read_model_config(folder("llama-9q3kv")));
  const Checkpoint weights = Checkpoint::dummy(config, 1);
  soak(config, weights, DType::kBF16, {}, steps(40), true);
}

}  // namespace
}  // namespace tandem::runtime
