// SPDX-License-Identifier: Apache-2.0
// From `--model` to what the commands work with: config and weights on every rank, tokenizer and
// chat template on rank 0. A fault on any rank is thrown on all.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "launch/command.h"
#include "launch/engine_options.h"
#include "runtime/engine_config.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/tokenizer.h"

namespace tandem::launch {

struct ModelSource {
  std::filesystem::path path;
  runtime::ModelConfig config;
  runtime::Checkpoint checkpoint;
};

/// Opens the model named by the options. Collective.
ModelSource open_model(Ranks& ranks, const EngineOptions& options);

/// The type to compute in, for `--dtype WANTED` and a checkpoint of type `stored`.
DType choose_dtype(const std::string& wanted, DType stored, const std::string& device);

/// The text side of a model; no rank but the first needs it.
struct ModelText {
  runtime::Tokenizer tokenizer;
  std::optional<runtime::TemplateTexts> templates;
  std::string bos_token, eos_token;
};
ModelText open_text(const std::filesystem::path& path);

/// Sizes and data type that the options lead to on this host, for `device` "cpu" or "cuda".
runtime::EngineConfig engine_config(const Ranks& ranks, const EngineOptions& options,
                                    const runtime::ModelConfig& model, const std::string& device);

}  // namespace tandem::launch
