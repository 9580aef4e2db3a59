// SPDX-License-Identifier: Apache-2.0
// From what a person gives as --model to files: a Hugging Face folder, a .gguf file, or a hub name
// ("org/name") that is looked up in the local Hugging Face cache. Never touches the network.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace tandem::runtime {

/// A folder with config.json, or a .gguf file; snapshots of the cache may be made of symlinks.
/// ConfigError when there is none: for a hub name it ends with the command that downloads it.
std::filesystem::path resolve_model_path(const std::string& model);

/// Whether `path` is a .gguf file, not a folder of that name.
bool is_gguf(const std::filesystem::path& path);

/// $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub.
std::filesystem::path hub_cache_folder();

}  // namespace tandem::runtime
