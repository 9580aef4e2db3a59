// SPDX-License-Identifier: Apache-2.0
// Any bytes as config.json: a config whose names, shards and frequencies can be made, or a
// ConfigError.
#include <cstddef>
#include <cstdint>

#include "parallel/shard.h"
#include "runtime/model_config.h"
#include "runtime/rope_table.h"
#include "tests/support/model_files.h"
#include "tests/support/temporary_folder.h"

using namespace tandem::testing;
namespace runtime = tandem::runtime;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const TemporaryFolder* const folder = new TemporaryFolder;
  write_file(folder->path() / "config.json",
             std::string(reinterpret_cast<const char*>(data), size));
  config_error([&] {
    const runtime::ModelConfig config = runtime::read_model_config(folder->path());
    if (config.num_layers() <= 64 && config.num_parameters() < 1) __builtin_trap();
    for (const runtime::RopeConfig& rope : config.ropes)
      runtime::rope_frequencies(rope, config.max_position);
    for (const runtime::LayerConfig& layer : config.layers)
      if (layer.rope >= static_cast<int>(config.ropes.size())) __builtin_trap();
    const tandem::parallel::Shard shard({config.num_heads, config.num_kv_heads, config.head_dim,
                                         config.intermediate_size, config.vocab_size},
                                        1, 2);
  });
  return 0;
}
