// SPDX-License-Identifier: Apache-2.0
// Shapes of real models, for tests that count bytes and operations and load nothing.
#pragma once

#include "runtime/model_config.h"

namespace tandem::testing {

/// SmolLM2-135M: nine query heads over three key-value heads, tied embeddings.
inline runtime::ModelConfig smollm2() {
  runtime::ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.name = "smol";
  config.vocab_size = 49152;
  config.hidden_size = 576;
  config.intermediate_size = 1536;
  config.num_heads = 9;
  config.num_kv_heads = 3;
  config.head_dim = 64;
  config.max_position = 8192;
  config.tied_embeddings = true;
  config.layers.resize(30);
  return config;
}

}  // namespace tandem::testing
