// SPDX-License-Identifier: Apache-2.0
// Shapes of models, for tests that count bytes and operations, or make random weights of them.
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

/// `config` in shapes that all fast kernels take.
inline runtime::ModelConfig with_fast_shapes(runtime::ModelConfig config) {
  config.hidden_size = 1024;
  config.num_heads = 8;
  config.num_kv_heads = 2;
  config.head_dim = 128;
  config.intermediate_size = 2816;
  config.vocab_size = 8192;
  for (runtime::RopeConfig& rope : config.ropes) rope.rotary_dim = 128;
  return config;
}

}  // namespace tandem::testing
