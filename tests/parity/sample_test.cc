// SPDX-License-Identifier: Apache-2.0
// Sampling on both devices from the same logits: token by token, and by distribution.
#include "kernels/sample.h"

#include <map>

#include "parity/slots.h"

namespace tandem::kernels {
namespace {

using namespace tandem::testing;

class Sample : public GpuTest {};

/// One sample per slot, in reverse order of slots; sample 1 is inert.
struct Problem {
  static constexpr int kHistory = 300;
  Problem(int count, std::int64_t vocab, float deviation)
      : samples(count), vocab_size(vocab), slots(Devices::get().cuda, count, kHistory) {
    auto& cuda = Devices::get().cuda;
    logits = {cuda, normal<float>(count * vocab, deviation, 21)};
    std::vector<std::int32_t> rows, slot_of, at;
    std::mt19937 random(22);
    for (int i = 0; i < count; ++i) {
      rows.push_back(i);
      slot_of.push_back(count - 1 - i);
      at.push_back(i == 1 ? -1 : static_cast<std::int32_t>(random() % (kHistory - 1)));
    }
    for (std::int32_t& token : slots.history.host)
      token = static_cast<std::int32_t>(random() % static_cast<unsigned>(vocab));
    for (int i = 0; i < count; ++i) {
      SlotParams& p = slots.params.host[static_cast<std::size_t>(i)];
      p.seed = random();
      p.prompt_tokens = 40;
    }
    sample_rows = {cuda, rows};
    sample_slots = {cuda, slot_of};
    positions = {cuda, at};
  }
  SlotParams& params(int i) { return slots.params.host[static_cast<std::size_t>(i)]; }

  template <Device D>
  ShardArgs<D> shard_args(std::int64_t begin, std::int64_t columns) {
    ShardArgs<D> args;
    args.samples = {samples, sample_rows.on<D>(), sample_slots.on<D>()};
    args.positions = positions.on<D>();
    args.slots = slots.view<D>();
    args.logits = logits.view<D>(samples, columns);
    args.vocab_begin = begin;
    args.vocab_size = vocab_size;
    return args;
  }
  template <Device D>
  FullSampleArgs<D> full_args(std::int32_t* tokens, TokenLogprob* logprobs) {
    FullSampleArgs<D> args;
    args.samples = {samples, sample_rows.on<D>(), sample_slots.on<D>()};
    args.positions = positions.on<D>();
    args.slots = slots.view<D>();
    args.logits = logits.cview<D>(samples, vocab_size);
    args.vocab_size = vocab_size;
    args.tokens = tokens;
    args.logprobs = logprobs;
    return args;
  }
  /// What the GPU's `end_step` makes of keys.
  std::vector<std::int32_t> end(TokenKey* best, const TokenKey* gathered, int ranks) {
    auto& cuda = Devices::get().cuda;
    Buffer<std::int32_t, Cuda> tokens(samples), turn(1);
    fill_zero(cuda, turn.data(), turn.size_bytes());
    EndStepArgs<Cuda> args;
    args.samples = {samples, sample_rows.on<Cuda>(), sample_slots.on<Cuda>()};
    args.positions = positions.on<Cuda>();
    args.best = best;
    args.gathered = gathered;
    args.ranks = ranks;
    args.tokens = tokens.data();
    args.turn = turn.data();
    args.slots = slots.view<Cuda>();
    end_step(cuda, args);
    return download(cuda, tokens.data(), samples);
  }
  /// Both devices sample; the share of equal tokens must be 1 but for `allowed`.
  void compare_full(const std::string& what, int allowed = 0) {
    auto& [cpu, cuda] = Devices::get();
    slots.upload_all(cuda);
    Mirror<std::int32_t> tokens(cuda,
                                std::vector<std::int32_t>(static_cast<std::size_t>(samples), -7));
    sample_full(cpu, full_args<Cpu>(tokens.host.data(), nullptr));
    sample_full(cuda, full_args<Cuda>(tokens.device.data(), nullptr));
    const auto got = download(cuda, tokens.device.data(), samples);
    int different = 0;
    for (std::size_t i = 0; i < got.size(); ++i) different += got[i] != tokens.host[i];
    EXPECT_LE(different, allowed) << what << ": " << different << " of " << samples << " differ";
    EXPECT_EQ(got[1], -7) << what << ": an inert row was written";
  }

  int samples;
  std::int64_t vocab_size;
  Slots slots;
  Mirror<float> logits;
  Mirror<std::int32_t> sample_rows, sample_slots, positions;
};

TEST_F(Sample, ProcessLogitsEqualsTheCpu) {
  auto& [cpu, cuda] = Devices::get();
  constexpr std::int64_t kVocab = 20000, kBegin = 128, kColumns = 19904;  // 32 columns of padding
  Problem problem(8, kVocab, 3.0f);
  problem.logits = {cuda, normal<float>(8 * kColumns, 3.0f, 21)};
  for (std::size_t i = 0; i < problem.slots.history.host.size(); i += 3)
    problem.slots.history.host[i] = 130 + static_cast<std::int32_t>(i % 5);
  problem.params(0).repetition_penalty = 1.3f;
  problem.params(2).frequency_penalty = 0.4f;
  problem.params(3).presence_penalty = -0.5f;
  problem.params(3).repetition_penalty = 0.8f;
  problem.params(4).no_repeat_ngram = 1;
  problem.params(5).no_repeat_ngram = 2;
  problem.params(6).min_tokens = 10000;
  problem.params(6).num_stop_ids = 3;
  problem.params(6).stop_ids[0] = 128;
  problem.params(6).stop_ids[1] = 5;
  problem.params(6).stop_ids[2] = 19999;
  problem.slots.upload_all(cuda);
  Mirror<std::int32_t> bias_begin(cuda, {0, 0, 3, 3, 3, 3, 3, 3, 4}),
      bias_ids(cuda, {127, 128, 9000, 19999});
  Mirror<float> bias_values(cuda, {1.0f, -2.5f, 100.0f, -std::numeric_limits<float>::infinity()});
  const auto run = [&]<typename D>(Context<D>& ctx) {
    process_logits(ctx, problem.shard_args<D>(kBegin, kColumns),
                   LogitBiasView<D>{bias_begin.on<D>(), bias_ids.on<D>(), bias_values.on<D>()});
  };
  run(cpu);
  run(cuda);
  expect_close(cuda, problem.logits, 1e-6f, "processed logits");
}

/// Slot 2 may only have three tokens, one of them forbidden; slots 3 and 4 have bad words.
TEST_F(Sample, AllowedTokensAndBadWordsEqualTheCpu) {
  auto& [cpu, cuda] = Devices::get();
  constexpr std::int64_t kVocab = 20000, kBegin = 128, kColumns = 19904;
  Problem problem(5, kVocab, 3.0f);
  problem.logits = {cuda, normal<float>(5 * kColumns, 3.0f, 21)};
  problem.positions = {cuda, std::vector<std::int32_t>(5, 100)};
  for (const int slot : {3, 4}) {
    std::int32_t* history = problem.slots.history.host.data() + slot * Problem::kHistory;
    history[99] = 6;
    history[100] = 7;
  }
  problem.slots.upload_all(cuda);
  Mirror<std::int32_t> bias_begin(cuda, {0, 0, 0, 3, 3, 3}), bias_ids(cuda, {200, 9000, 9001});
  Mirror<float> bias_values(cuda, {0.0f, 1.5f, -std::numeric_limits<float>::infinity()});
  Mirror<std::uint8_t> exclusive(cuda, {0, 0, 1, 0, 0});
  Mirror<std::int32_t> word_begin(cuda, {0, 0, 0, 0, 2, 3}), word_tokens(cuda, {0, 3, 5, 7}),
      words(cuda, {6, 7, 300, 6, 301, 7, 19999});
  const auto run = [&]<typename D>(Context<D>& ctx) {
    process_logits(ctx, problem.shard_args<D>(kBegin, kColumns),
                   LogitBiasView<D>{bias_begin.on<D>(), bias_ids.on<D>(), bias_values.on<D>(),
                                    exclusive.on<D>(), word_begin.on<D>(), word_tokens.on<D>(),
                                    words.on<D>()});
  };
  run(cpu);
  run(cuda);
  expect_close(cuda, problem.logits, 1e-6f, "processed logits");
  const auto got = download(cuda, problem.logits.device.data(), 5 * kColumns);
  const auto forbidden = [&](int slot) {
    const auto row = got.begin() + (4 - slot) * kColumns;
    return std::count(row, row + kColumns, -std::numeric_limits<float>::infinity());
  };
  EXPECT_EQ(forbidden(1), 0);
  EXPECT_EQ(forbidden(2), kVocab - kBegin - 2);
  EXPECT_EQ(forbidden(3), 1);
  EXPECT_EQ(forbidden(4), 1);
}

TEST_F(Sample, BestOfShardsEqualsTheCpuAndTheWholeRow) {
  auto& [cpu, cuda] = Devices::get();
  for (const std::int64_t vocab : {64, 1000, 32000, 128256}) {
    Problem problem(40, vocab, 4.0f);
    for (int i = 0; i < 40; ++i) problem.params(i).temperature = i % 3 == 0 ? 0.0f : 0.3f * i;
    problem.logits.host[5] = problem.logits.host[9] = 100.0f;  // a tie
    const auto row = [&](int i) { return problem.logits.host.begin() + i * vocab; };
    std::fill(row(3), row(4), std::numeric_limits<float>::quiet_NaN());
    std::fill(row(6), row(7), -std::numeric_limits<float>::infinity());
    for (auto at = row(7); at < row(9); at += 3) *at = std::numeric_limits<float>::quiet_NaN();
    problem.logits.device = upload(cuda, problem.logits.host);
    problem.slots.upload_all(cuda);
    std::vector<TokenKey> keys(40);
    best_of_shard(cpu, problem.shard_args<Cpu>(0, vocab), keys.data());
    std::vector<Candidate> want;
    for (const TokenKey key : keys) want.push_back(candidate_of(key));
    EXPECT_EQ(want[3].id, candidate_of(no_token()).id);
    EXPECT_EQ(want[6].id, 0);
    Buffer<TokenKey, Cuda> best(80), own(40);
    fill_zero(cuda, best.data(), best.size_bytes());
    best_of_shard(cuda, problem.shard_args<Cuda>(0, vocab), best.data());
    const auto got = download(cuda, best.data(), 40);
    for (std::size_t i = 0; i < want.size(); ++i) {
      const Candidate found = candidate_of(got[i]);
      EXPECT_EQ(found.id, want[i].id) << "vocabulary " << vocab << " sample " << i;
      if (std::isinf(want[i].value)) {
        EXPECT_EQ(found.value, want[i].value);
      } else {
        EXPECT_NEAR(found.value, want[i].value, 1e-4f * (1 + std::fabs(want[i].value)));
      }
    }
    // Two ranks: halves of the columns give the same tokens.
    const std::int64_t half = vocab / 2;
    fill_zero(cuda, best.data(), best.size_bytes());
    for (int rank = 0; rank < 2; ++rank) {
      auto args = problem.shard_args<Cuda>(rank * half, half);
      args.logits.data += rank * half;
      args.logits.stride = vocab;
      best_of_shard(cuda, args, best.data() + rank * 40);
    }
    const auto picked = problem.end(own.data(), best.data(), 2);
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_EQ(picked[i], i == 1 ? -1 : want[i].id) << "vocabulary " << vocab << " sample " << i;
  }
}

TEST_F(Sample, JoinShardsEqualsTheCpu) {
  auto& [cpu, cuda] = Devices::get();
  Mirror<float> gathered(cuda, normal<float>(3 * 4 * 5000, 1.0f, 1)),
      out(cuda, poison<float>(4 * 13000));
  Mirror<std::int32_t> begin(cuda, {0, 5000, 9001, 13000});
  const auto run = [&]<typename D>(Context<D>& ctx) {
    join_shards(
        ctx, JoinShardsArgs<D>{gathered.on<D>(), begin.on<D>(), 3, 4, 5000, out.view<D>(4, 13000)});
  };
  run(cpu);
  run(cuda);
  expect_equal(cuda, out, "joined");
}

TEST_F(Sample, FullEqualsTheCpu) {
  for (const std::int64_t vocab : {50, 3000, 49152, 128256})
    for (const float deviation : {0.5f, 3.0f}) {
      if (vocab > 100000 && deviation < 1.0f) continue;  // the CPU sorts slowly
      Problem problem(64, vocab, deviation);
      const std::string size = concat("vocabulary ", vocab, " deviation ", deviation, " ");
      const auto with = [&](const std::string& what, auto set, int allowed = 0) {
        for (int i = 0; i < 64; ++i) {
          SlotParams& p = problem.params(i);
          const SlotParams fresh;
          const auto seed = p.seed;
          p = fresh;
          p.seed = seed + 1;
          p.temperature = 0.7f + 0.01f * static_cast<float>(i);
          set(p, i);
        }
        problem.compare_full(size + what, allowed);
      };
      with("greedy", [](SlotParams& p, int) { p.temperature = 0; });
      with("temperature", [](SlotParams&, int) {});
      with("top-k", [](SlotParams& p, int i) { p.top_k = 1 + i * i; });
      with("top-p",
           [](SlotParams& p, int i) { p.top_p = 0.01f + 0.0155f * static_cast<float>(i); });
      with("min-p", [](SlotParams& p, int i) { p.min_p = 0.01f * static_cast<float>(i); });
      with("all", [](SlotParams& p, int i) {
        p.top_k = 200;
        p.top_p = 0.9f;
        p.min_p = 0.001f * static_cast<float>(i);
      });
      // The order of tokens at equal distance from the entropy may differ by rounding.
      with(
          "typical",
          [](SlotParams& p, int i) { p.typical_p = 0.2f + 0.01f * static_cast<float>(i); }, 1);
    }
}

TEST_F(Sample, FullWithManyEqualLogits) {
  auto& cuda = Devices::get().cuda;
  Problem problem(16, 30000, 1.0f);
  for (std::size_t i = 0; i < problem.logits.host.size(); ++i)
    problem.logits.host[i] = i % 7 == 0 ? -std::numeric_limits<float>::infinity() : 1.5f;
  problem.logits.device = upload(cuda, problem.logits.host);
  for (int i = 0; i < 16; ++i) {
    problem.params(i).temperature = 1.0f;
    if (i % 2 == 0) problem.params(i).top_k = 1 + i * 100;
    if (i % 3 == 0) problem.params(i).top_p = 0.3f;
  }
  problem.compare_full("equal logits");
}

TEST_F(Sample, LogprobsEqualTheCpu) {
  auto& [cpu, cuda] = Devices::get();
  for (const std::int64_t vocab : {12, 5000, 128256}) {
    Problem problem(6, vocab, 3.0f);
    problem.logits.host[3] = -std::numeric_limits<float>::infinity();
    problem.logits.device = upload(cuda, problem.logits.host);
    problem.params(0).temperature = 1.0f;
    problem.slots.upload_all(cuda);
    constexpr std::int64_t kWidth = 1 + kMaxLogprobs;
    std::vector<TokenLogprob> want(6 * kWidth);
    Buffer<TokenLogprob, Cuda> device(6 * kWidth);
    Mirror<std::int32_t> tokens(cuda, std::vector<std::int32_t>(6, 0));
    sample_full(cpu, problem.full_args<Cpu>(tokens.host.data(), want.data()));
    sample_full(cuda, problem.full_args<Cuda>(tokens.device.data(), device.data()));
    const auto got = download(cuda, device.data(), 6 * kWidth);
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (i / kWidth == 1) continue;  // inert
      EXPECT_EQ(got[i].id, want[i].id) << "vocabulary " << vocab << " entry " << i;
      if (std::isinf(want[i].logprob)) {
        EXPECT_EQ(got[i].logprob, want[i].logprob);
      } else {
        EXPECT_NEAR(got[i].logprob, want[i].logprob, 2e-5f);
      }
    }
  }
}

TEST_F(Sample, ScoresEqualTheCpu) {
  auto& [cpu, cuda] = Devices::get();
  constexpr std::int64_t kRows = 7, kVocab = 32000, kWidth = 1 + kMaxLogprobs;
  Mirror<float> logits(cuda, normal<float>(kRows * kVocab, 3.0f, 23));
  Mirror<std::int32_t> targets(cuda, {0, 5, 31990, 16000, 7, 8, 9});
  const auto args = [&]<typename D>(TokenLogprob* out, D) {
    return ScoreArgs<D>{logits.cview<D>(kRows, kVocab), kVocab - 3, targets.on<D>(), out};
  };
  std::vector<TokenLogprob> want(kRows * kWidth);
  Buffer<TokenLogprob, Cuda> device(kRows * kWidth);
  score(cpu, args(want.data(), Cpu{}));
  score(cuda, args(device.data(), Cuda{}));
  const auto got = download(cuda, device.data(), kRows * kWidth);
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].id, want[i].id) << i;
    EXPECT_NEAR(got[i].logprob, want[i].logprob, 2e-5f) << i;
  }
}

/// Draws of one distribution over 8 tokens, each with its own seed: Pearson's chi-square with 7
/// degrees of freedom stays below 29.9 with probability 0.9999.
TEST_F(Sample, DrawsFollowTheSoftmax) {
  constexpr int kDraws = 4096, kTokens = 8;
  auto& cuda = Devices::get().cuda;
  Problem problem(kDraws, kTokens, 1.0f);
  const std::vector<float> row{0.0f, 1.0f, -1.0f, 0.5f, 2.0f, -0.5f, 1.5f, 0.25f};
  for (std::size_t i = 0; i < problem.logits.host.size(); ++i)
    problem.logits.host[i] = row[i % kTokens];
  problem.logits.device = upload(cuda, problem.logits.host);
  problem.positions = {cuda, std::vector<std::int32_t>(kDraws, 17)};
  for (int i = 0; i < kDraws; ++i) {
    problem.params(i).temperature = 0.8f;
    problem.params(i).seed = static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15u;
  }
  problem.slots.upload_all(cuda);
  double total = 0;
  for (const float logit : row) total += std::exp(logit / 0.8);
  const auto check = [&](const std::vector<std::int32_t>& tokens, const char* what) {
    std::map<std::int32_t, int> counts;
    for (const std::int32_t token : tokens) ++counts[token];
    double chi_square = 0;
    for (int t = 0; t < kTokens; ++t) {
      const double expected = kDraws * std::exp(row[static_cast<std::size_t>(t)] / 0.8) / total;
      chi_square += (counts[t] - expected) * (counts[t] - expected) / expected;
    }
    EXPECT_LT(chi_square, 29.9) << what;
    EXPECT_GT(chi_square, 0.01) << what;  // not merely the expected counts
  };
  Buffer<std::int32_t, Cuda> tokens(kDraws);
  sample_full(cuda, problem.full_args<Cuda>(tokens.data(), nullptr));
  check(download(cuda, tokens.data(), kDraws), "full");
  Buffer<TokenKey, Cuda> best(kDraws);
  fill_zero(cuda, best.data(), best.size_bytes());
  best_of_shard(cuda, problem.shard_args<Cuda>(0, kTokens), best.data());
  check(problem.end(best.data(), nullptr, 1), "shards");
  for (const TokenKey key : download(cuda, best.data(), kDraws)) EXPECT_EQ(key, 0u);
}

}  // namespace
}  // namespace tandem::kernels
