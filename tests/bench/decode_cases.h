// SPDX-License-Identifier: Apache-2.0
// The shards and batches that a bench of decode's kernels goes through, as its command line says.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/device/error.h"
#include "tests/bench/decode_shapes.h"
#include "tests/bench/replay.h"

namespace tandem::bench {

struct DecodeCases {
  std::vector<int> tensor_parallel, batches, contexts;

  /// Takes `--tp`, `--batch` and `--context`, and gives `other` what is none of them; it returns
  /// whether it knows the option. ConfigError otherwise, which names the bench's source.
  void parse(int argc, char** argv, const std::string& source,
             const std::function<bool(const std::string& name, const std::string& value)>& other) {
    for (int i = 1; i + 1 < argc; i += 2) {
      const std::string name = argv[i], value = argv[i + 1];
      if (name == "--tp")
        tensor_parallel = numbers(value);
      else if (name == "--batch")
        batches = numbers(value);
      else if (name == "--context")
        contexts = numbers(value);
      else if (!other(name, value))
        throw ConfigError("unknown option " + name + ": see the first lines of " + source);
    }
  }

  /// Calls `body` for every case, whose data is complete; `layers` of a shard have weights.
  void for_each(Context<Cuda>& ctx, int layers,
                const std::function<void(Model&, Batch&)>& body) const {
    const RandomSource random(ctx);
    for (const int ranks : tensor_parallel) {
      ShardSizes sizes;
      sizes.tensor_parallel = ranks;
      sizes.layers = layers;
      Model model(ctx, random, sizes);
      for (const int rows : batches)
        for (const int context : contexts) {
          Batch batch(ctx, random, sizes, rows, context);
          ctx.compute().synchronize();
          body(model, batch);
        }
    }
  }
};

}  // namespace tandem::bench
