// SPDX-License-Identifier: Apache-2.0
// What each architecture of llama.cpp means beyond the keys that all share: one short function
// per family, metadata -> ModelConfig, beside `model_families` for config.json. Some numbers are in
// no file (windows and scales that llama.cpp knows by architecture); they are here.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "kernels/device/error.h"
#include "runtime/model_config.h"
#include "runtime/weights/gguf_reader.h"

namespace tandem::runtime {

/// Metadata keys of one architecture: key("block_count") is "llama.block_count".
struct GgufKeys {
  std::string prefix;
  std::string operator()(std::string_view key) const { return concat(prefix, ".", key); }
};

struct GgufFamily {
  std::string_view name;          ///< `general.architecture`
  std::string_view architecture;  ///< As Hugging Face calls it.
  bool permuted_rows;             ///< The conversion interleaves the rows of q and k.
  /// Shape numbers, layers and `ropes[0]` are set before the call. Null: nothing to add.
  void (*apply)(const GgufFile& file, const GgufKeys& key, ModelConfig& config);
};

/// ConfigError with the list of known ones when the file's architecture is none of them.
const GgufFamily& gguf_family(const GgufFile& file);

/// The rotary embedding that all layers share unless the family says otherwise.
RopeConfig gguf_rope(const GgufFile& file, const GgufKeys& key, const ModelConfig& config);

}  // namespace tandem::runtime
