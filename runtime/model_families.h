// SPDX-License-Identifier: Apache-2.0
// What each model family says in config.json beyond the shape numbers that all share: one short
// function per family, config.json -> ModelConfig. To add a family, add its function and its row
// in the table, and its tensor names in `weights/tensor_names.cc` where they are new.
#pragma once

#include <span>
#include <string_view>

#include "runtime/json_file.h"
#include "runtime/model_config.h"

namespace tandem::runtime {

struct Family {
  std::string_view architecture;  ///< As in config.json's "architectures".
  /// Shape numbers, layers (with window 0 and rope 0), and norm_eps are set before the call.
  void (*apply)(const JsonFields& fields, ModelConfig& config);
  bool tied_by_default = false;  ///< When config.json has no "tie_word_embeddings".
};

std::span<const Family> families();

/// Null when Tandem does not know it.
const Family* find_family(std::string_view architecture);

}  // namespace tandem::runtime
