// SPDX-License-Identifier: Apache-2.0
// Time of the kernels of a decode step and of the whole chain, one rank's shard of Llama-3-8B,
// communication left out: `decode_bench [--tp 1,2,4,8] [--batch 1,4,32] [--context 128,1024]
// [--paths auto,streaming,cublaslt]`. Every case is captured over all layers, so that weights come
// from memory, and replayed. Paths: "auto" takes the fastest matmul per shape, "cublaslt" the
// library's always, "streaming" and "skinny" ours (up to 8 rows the one or the other), "nopdl"
// streaming without dependent launches. JSON on stdout, lines on stderr.
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "tests/bench/decode_cases.h"
#include "tests/bench/decode_chain.h"
#include "tests/bench/report.h"

namespace tandem::bench {
namespace {

CudaOptions options_of(const std::string& path) {
  CudaOptions options;
  if (path != "auto") options.decode_matmul = DecodeMatmul::kStreaming;
  if (path == "skinny") options.decode_matmul = DecodeMatmul::kSkinny;
  if (path == "cublaslt") options.decode_matmul = DecodeMatmul::kCublasLt;
  if (path == "nopdl") options.programmatic_launch = false;
  return options;
}

/// Adds the rate and the time of one call.
void add(Report& report, const std::string& name, const std::vector<double>& pass_us, int calls,
         double bytes_per_call) {
  std::vector<double> us, gb_per_s;
  for (const double pass : pass_us) {
    us.push_back(pass / calls);
    gb_per_s.push_back(bytes_per_call / us.back() / 1000.0);
  }
  report.add_median(name, "time_us", "us", us, 0);
  report.add_median(name, "gb_per_s", "GB/s", gb_per_s, kReadCeiling);
}

void run_batch(Context<Cuda>& ctx, const std::string& path, Model& model, Batch& batch,
               Report& report, bool first_context, bool first_path) {
  const ShardSizes& s = model.sizes;
  Chain chain(ctx, model, batch);
  const std::string prefix = concat("llama-3-8b bf16 tp", s.tensor_parallel, " batch", batch.rows);
  const auto each = [&](void (Chain::*op)(int)) {
    return replay_us(ctx, [&] {
      for (int layer = 0; layer < s.layers; ++layer) (chain.*op)(layer);
    });
  };
  const LayerWeights& w = model.layers[0];
  const auto bytes = [](const Weight& weight) { return static_cast<double>(weight.size_bytes()); };
  const double kv_bytes = 4.0 * batch.rows * (batch.context + 1) * s.kv_heads() * s.head_dim;
  if (first_context) {
    add(report, prefix + " qkv " + path, each(&Chain::qkv), s.layers, bytes(w.qkv));
    add(report, prefix + " o " + path, each(&Chain::o), s.layers, bytes(w.o));
    add(report, prefix + " gate_up " + path, each(&Chain::gate_up), s.layers, bytes(w.gate_up));
    add(report, prefix + " down " + path, each(&Chain::down), s.layers, bytes(w.down));
    add(report, prefix + " head " + path, replay_us(ctx, [&] { chain.head(); }), 1,
        bytes(model.head));
    if (first_path)
      add(report, prefix + " sample", replay_us(ctx, [&] { chain.sample(); }), 1,
          4.0 * batch.rows * s.vocab());
  }
  const std::string context = concat(" ctx", batch.context);
  if (first_path)
    add(report, prefix + context + " attend", each(&Chain::attend), s.layers, kv_bytes);
  add(report, prefix + context + " chain " + path, replay_us(ctx, [&] { chain.all(); }), 1,
      s.layers * (bytes(w.qkv) + bytes(w.o) + bytes(w.gate_up) + bytes(w.down) + kv_bytes) +
          bytes(model.head));
}

void run(int argc, char** argv) {
  DecodeCases cases{{1, 2, 4, 8}, {1, 4, 32}, {128, 1024}};
  std::vector<std::string> paths{"auto", "streaming", "cublaslt"};
  cases.parse(argc, argv, "decode_bench.cc",
              [&](const std::string& name, const std::string& value) {
                if (name == "--paths") paths = split(value);
                return name == "--paths";
              });
  std::vector<std::unique_ptr<Context<Cuda>>> contexts;
  for (const std::string& path : paths)
    contexts.push_back(std::make_unique<Context<Cuda>>(options_of(path)));
  Report report("decode_kernels", argc, argv);
  cases.for_each(*contexts.front(), ShardSizes{}.layers, [&](Model& model, Batch& batch) {
    for (std::size_t i = 0; i < contexts.size(); ++i)
      run_batch(*contexts[i], paths[i], model, batch, report,
                batch.context == cases.contexts.front(), i == 0);
  });
  report.print();
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  try {
    tandem::bench::run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "decode_bench: " << error.what() << "\n";
    return 1;
  }
}
