// SPDX-License-Identifier: Apache-2.0
#include "launch/bench_command.h"

#include <cstdio>

#include "kernels/device/error.h"
#include "launch/bench/domains.h"
#include "launch/bench/latency.h"
#include "launch/bench/mixed.h"
#include "launch/bench/overlap.h"
#include "launch/bench/scaling.h"
#include "launch/bench/serve.h"
#include "launch/bench/throughput.h"
#include "launch/command_line.h"

namespace tandem::launch {
namespace {

const std::vector<Command>& kinds() {
  static const std::vector<Command> list = {
      {"latency", "time to first token and per output token, beside the hardware's floor",
       run_bench_latency},
      {"shard", "the same for one rank's shard, communication left out", run_bench_shard},
      {"domains", "what memory synchronization domains are worth on this GPU", run_bench_domains},
      {"mixed", "what a long prompt does to answers that are being written, and they to it",
       run_bench_mixed},
      {"overlap", "what communication costs a prefill, with and without overlap",
       run_bench_overlap},
      {"scaling", "latency on 1, 2, 4, ... ranks, each a job that it starts: speed-up, efficiency",
       run_bench_scaling},
      {"throughput", "tokens per second of the engine: a set of requests, or a steady state",
       run_bench_throughput},
      {"serve", "load an OpenAI-compatible server: latencies, goodput, rates, traces",
       run_bench_serve},
  };
  return list;
}

std::string help() {
  std::string text = "usage: tandem bench KIND [options]\n\nkinds:\n";
  for (const Command& kind : kinds()) {
    std::string name = kind.name;
    name.resize(12, ' ');
    text += "  " + name + kind.summary + "\n";
  }
  return text;
}

}  // namespace

int run_bench(Ranks& ranks, const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    if (ranks.first()) std::fputs(help().c_str(), stdout);
    return arguments.empty() ? 2 : 0;
  }
  std::vector<std::string> names;
  for (const Command& kind : kinds()) {
    if (arguments[0] == kind.name) return kind.run(ranks, {arguments.begin() + 1, arguments.end()});
    names.emplace_back(kind.name);
  }
  const std::string meant = nearest(arguments[0], names);
  throw ConfigError(concat("tandem bench has no kind ", arguments[0],
                           meant.empty() ? "; see tandem bench --help"
                                         : concat("; did you mean tandem bench ", meant, "?")));
}

}  // namespace tandem::launch
