// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/latency_options.h"

#include "kernels/device/error.h"

namespace tandem::launch {

namespace po = boost::program_options;

void LatencyOptions::add_to(po::options_description& description) {
  description.add_options()("batch-size",
                            po::value(&batches)->multitoken()->default_value({1}, "1"),
                            "sequences that decode together; several give several cases")(
      "input-len", po::value(&contexts)->multitoken()->default_value({128}, "128"),
      "prompt tokens of the decode cases")("output-len",
                                           po::value(&output_len)->default_value(output_len),
                                           "tokens that the decode cases time")(
      "prefill-len", po::value(&prefills)->multitoken()->default_value({}, ""),
      "prompt tokens of the prefill cases")("num-iters", po::value(&runs)->default_value(runs),
                                            "timed runs of each case")(
      "num-iters-warmup", po::value(&warmup)->default_value(warmup), "runs before them")(
      "name", po::value(&name), "the model's name in the results; default: its folder's");
  engine.add_to(description);
}

void LatencyOptions::validate() {
  if (engine.mem_sync_domains == "both") {
    both_domains = true;
    engine.mem_sync_domains = "auto";
    TANDEM_REQUIRE(!prefills.empty(),
                   "--mem-sync-domains=both compares prefills with sums over ranks beside them: "
                   "name their lengths with --prefill-len");
  }
  for (const auto* list : {&batches, &contexts, &prefills})
    for (const std::int32_t value : *list)
      TANDEM_REQUIRE(value > 0, "a batch size or length must be at least 1, not ", value);
  TANDEM_REQUIRE(runs > 0, "--num-iters must be at least 1, not ", runs);
  TANDEM_REQUIRE(output_len > 1, "--output-len must be at least 2, not ", output_len);
}

}  // namespace tandem::launch
