// SPDX-License-Identifier: Apache-2.0
// From `--model` to what the commands work with: config and weights on every rank, tokenizer and
// chat template on rank 0 only. A fault on any rank is thrown on all.
#pragma once

#include <filesystem>
#include <memory>
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

/// Rank 0's text side of a model.
struct ModelText {
  runtime::Tokenizer tokenizer;
  std::optional<std::string> template_source;
  std::string bos_token, eos_token;
};
ModelText open_text(const std::filesystem::path& path);

/// The sizes and the data type that `options` and `source` lead to on this host.
runtime::EngineConfig engine_config(const Ranks& ranks, const EngineOptions& options,
                                    const runtime::ModelConfig& model);

/// Loads this rank's slice on the device of the options. Collective. `device_name` gets what to
/// show people ("cpu", "NVIDIA H200").
std::unique_ptr<runtime::Engine> make_engine(Ranks& ranks, const EngineOptions& options,
                                             const ModelSource& source, runtime::LoadReport* report,
                                             std::string* device_name);

}  // namespace tandem::launch
