// SPDX-License-Identifier: Apache-2.0
// Time of decode attention in a layer of Llama-3-8B: `decode_attention_bench [--tp 1]
// [--batch 1,32] [--context 128,1024,8192]`. For each case a graph of attention alone, one launch
// after another, and what it adds to a graph of the matmuls before and behind it. Several layers
// are captured, so that keys, values and weights come from memory. JSON on stdout, lines on stderr.
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "tests/bench/decode_cases.h"
#include "tests/bench/decode_chain.h"
#include "tests/bench/report.h"

namespace tandem::bench {
namespace {

constexpr int kLayers = 8;

/// Microseconds per layer of each replay of a captured pass over the layers.
std::vector<double> measure(Context<Cuda>& ctx, const std::function<void(int)>& layer) {
  constexpr int kPasses = 4;
  std::vector<double> times = replay_us(ctx, [&] {
    for (int i = 0; i < kPasses * kLayers; ++i) layer(i % kLayers);
  });
  for (double& us : times) us /= kPasses * kLayers;
  return times;
}

void run_case(Context<Cuda>& ctx, Model& model, Batch& batch, Report& report) {
  const ShardSizes& s = model.sizes;
  Chain chain(ctx, model, batch);
  const std::string name = concat("llama-3-8b bf16 tp", s.tensor_parallel, " batch", batch.rows,
                                  " ctx", batch.context, " attend");
  const double bytes = 4.0 * batch.rows * (batch.context + 1) * s.kv_heads() * s.head_dim;
  const std::vector<double> alone = measure(ctx, [&](int layer) { chain.attend(layer); });
  std::vector<double> rate;
  for (const double us : alone) rate.push_back(bytes / us / 1000.0);
  report.add_median(name, "alone_us", "us", alone, 0);
  report.add_median(name, "gb_per_s", "GB/s", rate, kReadCeiling);
  const std::vector<double> matmuls = measure(ctx, [&](int layer) {
    chain.qkv(layer);
    chain.o(layer);
  });
  std::vector<double> added = measure(ctx, [&](int layer) {
    chain.qkv(layer);
    chain.attend(layer);
    chain.o(layer);
  });
  for (std::size_t i = 0; i < added.size(); ++i) added[i] -= matmuls[i];
  report.add_median(name, "added_us", "us", added, 0);
}

void run(int argc, char** argv) {
  DecodeCases cases{{1}, {1, 32}, {128, 1024, 8192}};
  cases.parse(argc, argv, "decode_attention_bench.cc",
              [](const std::string&, const std::string&) { return false; });
  Context<Cuda> ctx(CudaOptions{});
  Report report("decode_attention", argc, argv);
  cases.for_each(ctx, kLayers,
                 [&](Model& model, Batch& batch) { run_case(ctx, model, batch, report); });
  report.print();
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  try {
    tandem::bench::run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "decode_attention_bench: " << error.what() << "\n";
    return 1;
  }
}
