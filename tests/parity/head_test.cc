// SPDX-License-Identifier: Apache-2.0
#include "kernels/head.h"

#include "parity/slots.h"

namespace tandem::kernels {
namespace {

using namespace tandem::testing;

class Head : public GpuTest {};

template <typename T>
void compare(int samples, std::int64_t hidden, std::int64_t vocab, float scale, float softcap) {
  auto& [cpu, cuda] = Devices::get();
  const std::int64_t rows = 2 * samples + 1;
  const MirrorWeight<T> weight(cpu, cuda, vocab, hidden, 1);
  Mirror<T> normed(cuda, normal<T>(rows * hidden, 1.0f, 2)),
      gathered(cuda, poison<T>(samples * hidden));
  Mirror<float> logits(cuda, poison<float>(samples * vocab));
  std::vector<std::int32_t> which;
  for (int i = 0; i < samples; ++i) which.push_back(2 * (samples - i));
  Mirror<std::int32_t> sample_rows(cuda, which);
  const auto run = [&]<typename D>(Context<D>& ctx) {
    HeadArgs<T, D> args;
    args.samples = {samples, sample_rows.on<D>(), nullptr};
    args.normed = normed.template cview<D>(rows, hidden);
    args.weight = &weight.template on<D>();
    args.scale = scale;
    args.softcap = softcap;
    args.gathered = gathered.template view<D>(samples, hidden);
    args.logits = logits.view<D>(samples, vocab);
    head(ctx, args);
  };
  run(cpu);
  run(cuda);
  // Products of T are exact in float: only the order of the sum differs.
  expect_close(cuda, logits, 1e-4f, concat(name(dtype_of<T>), " samples ", samples));
}

/// The logits and the best of them come out as from `head` and `best_of_shard`, bit for bit, also
/// where the last columns are padding and some rows have a temperature.
template <typename T>
void compare_best(int samples, std::int64_t hidden, std::int64_t vocab, float softcap) {
  auto& [cpu, cuda] = Devices::get();
  const MirrorWeight<T> weight(cpu, cuda, vocab, hidden, 1);
  const auto x = upload(cuda, normal<T>(samples * hidden, 1.0f, 2));
  Slots slots(cuda, samples, 1);
  std::vector<std::int32_t> rows, slot_of, at;
  for (int i = 0; i < samples; ++i) {
    SlotParams& params = slots.params.host[static_cast<std::size_t>(i)];
    params.temperature = i % 2 == 0 ? 0.0f : 0.9f;
    params.seed = static_cast<std::uint64_t>(i) * 77;
    rows.push_back(samples - 1 - i);
    slot_of.push_back((i + 1) % samples);
    at.push_back(i == 2 ? -1 : 10 + i);
  }
  slots.upload_all(cuda);
  const auto sample_rows = upload(cuda, rows), sample_slots = upload(cuda, slot_of),
             positions = upload(cuda, at);
  const auto want = poisoned<float>(cuda, samples * vocab),
             got = poisoned<float>(cuda, samples * vocab);
  Buffer<TokenKey, Cuda> want_best(samples), got_best(samples);
  fill_zero(cuda, want_best.data(), want_best.size_bytes());
  fill_zero(cuda, got_best.data(), got_best.size_bytes());
  HeadArgs<T, Cuda> args;
  args.samples = {samples, nullptr, nullptr};
  args.normed = TensorView<const T, Cuda>(x.data(), samples, hidden);
  args.weight = &weight.cuda;
  args.softcap = softcap;
  ShardArgs<Cuda> shard;
  shard.samples = {samples, sample_rows.data(), sample_slots.data()};
  shard.positions = positions.data();
  shard.slots = slots.view<Cuda>();
  shard.vocab_begin = 640;
  shard.vocab_size = 640 + vocab - 13;
  args.logits = shard.logits = want.view(samples, vocab);
  head(cuda, args);
  best_of_shard(cuda, shard, want_best.data());
  args.logits = shard.logits = got.view(samples, vocab);
  head_best(cuda, args, shard, got_best.data());
  EXPECT_EQ(download(cuda, got.data(), samples * vocab),
            download(cuda, want.data(), samples * vocab));
  const auto keys = download(cuda, got_best.data(), samples);
  EXPECT_EQ(keys, download(cuda, want_best.data(), samples)) << "samples " << samples;
  for (const TokenKey key : keys) {
    EXPECT_GE(candidate_of(key).id, 640);
    EXPECT_LT(candidate_of(key).id, shard.vocab_size);
  }
}

/// A norm that was left to the head: the residual and three parts of its rows' squares; in bfloat16
/// the op before has multiplied by the norm's weights, so that the factor alone is left.
template <typename T>
void compare_normed(int samples, std::int64_t hidden, std::int64_t vocab) {
  auto& [cpu, cuda] = Devices::get();
  const MirrorWeight<T> weight(cpu, cuda, vocab, hidden, 1);
  Mirror<T> residual(cuda, normal<T>(samples * hidden, 3.0f, 2)),
      normed(cuda, poison<T>(samples * hidden));
  Mirror<float> norm(cuda, normal<float>(hidden, 1.0f, 3)),
      logits(cuda, poison<float>(samples * vocab));
  std::vector<float> squares(static_cast<std::size_t>(3 * samples));
  for (std::size_t i = 0; i < residual.host.size(); ++i) {
    const auto x = static_cast<float>(residual.host[i]);
    squares[i / static_cast<std::size_t>(hidden) * 3 + i % 3] += x * x;
  }
  const auto parts = upload(cuda, squares);
  constexpr bool kWeighted = std::is_same_v<T, BFloat16>;
  std::vector<T> products = poison<T>(samples * hidden);
  for (std::size_t i = 0; kWeighted && i < products.size(); ++i)
    products[i] =
        T(static_cast<float>(residual.host[i]) * norm.host[i % static_cast<std::size_t>(hidden)]);
  Mirror<T> given(cuda, products);
  Slots slots(cuda, samples, 1);
  std::vector<std::int32_t> rows;
  for (int i = 0; i < samples; ++i) rows.push_back(i);
  const auto of_sample = upload(cuda, rows);
  AddNormArgs<T, Cpu> now;
  now.residual = residual.template view<Cpu>(samples, hidden);
  now.next_norm = {norm.on<Cpu>(), 1e-5f};
  now.normed = normed.template view<Cpu>(samples, hidden);
  add_norm(cpu, now);
  HeadArgs<T, Cpu> want;
  want.samples.num_samples = samples;
  want.normed = normed.template cview<Cpu>(samples, hidden);
  want.weight = &weight.cpu;
  want.logits = logits.view<Cpu>(samples, vocab);
  head(cpu, want);

  DeferredNorm<T, Cuda> deferred{residual.template view<Cuda>(samples, hidden),
                                 given.template view<Cuda>(samples, hidden),
                                 {norm.on<Cuda>(), 1e-5f},
                                 parts.data(),
                                 3,
                                 kWeighted};
  HeadArgs<T, Cuda> args;
  args.samples.num_samples = samples;
  args.normed = given.template cview<Cuda>(samples, hidden);
  args.deferred = &deferred;
  args.weight = &weight.cuda;
  args.logits = logits.view<Cuda>(samples, vocab);
  ShardArgs<Cuda> shard;
  shard.samples = {samples, of_sample.data(), of_sample.data()};
  shard.positions = of_sample.data();
  shard.slots = slots.view<Cuda>();
  shard.logits = args.logits;
  shard.vocab_size = vocab;
  Buffer<TokenKey, Cuda> best(2 * samples);
  fill_zero(cuda, best.data(), best.size_bytes());
  head_best(cuda, args, shard, best.data());
  expect_close(cuda, logits, 2 * kTolerance<T>, concat("normed, samples ", samples));
  best_of_shard(cuda, shard, best.data() + samples);
  EXPECT_EQ(download(cuda, best.data(), samples), download(cuda, best.data() + samples, samples));
}

TEST_F(Head, NormsItsRowsWhereThatIsDue) {
  for_each_type([]<typename T>() {
    for (const int samples : {1, 4, 8, 9}) compare_normed<T>(samples, 576, 1111);
    compare_normed<T>(1, 4096, 2048);
  });
}

TEST_F(Head, FindsTheBestOfItsLogits) {
  for_each_type([]<typename T>() {
    for (const int samples : {1, 2, 3, 8, 9, 30}) compare_best<T>(samples, 576, 1111, 0.0f);
    compare_best<T>(5, 128, 64, 30.0f);
    compare_best<T>(4, 4096, 1024, 0.0f);
  });
}

TEST_F(Head, EqualsTheCpu) {
  for_each_type([]<typename T>() {
    for (const int samples : {1, 2, 5, 8, 9, 30}) compare<T>(samples, 576, 1111, 1.0f, 0.0f);
    compare<T>(3, 104, 4097, 0.125f, 30.0f);
    compare<T>(20, 104, 64, 2.0f, 5.0f);
    compare<T>(1, 4096, 16032, 1.0f, 0.0f);
  });
}

}  // namespace
}  // namespace tandem::kernels
