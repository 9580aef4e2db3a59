// SPDX-License-Identifier: Apache-2.0
// The safetensors format: 8 bytes header length, a JSON header, then the data
// (https://github.com/huggingface/safetensors#format). Only the header is read here; entries
// point into the mapped file. Every number of the file is checked before it is used.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "runtime/weights/checkpoint.h"
#include "runtime/weights/mapped_file.h"

namespace tandem::runtime {

/// The tensors of one file, which must outlive them.
TensorMap read_safetensors(const MappedFile& file);

/// The files of a model folder: model.safetensors, or those that model.safetensors.index.json
/// names. Adds the mapped files to `files`. ConfigError when a shard or a tensor is missing.
TensorMap read_safetensors_folder(const std::filesystem::path& folder,
                                  std::vector<std::shared_ptr<const MappedFile>>& files);

}  // namespace tandem::runtime
