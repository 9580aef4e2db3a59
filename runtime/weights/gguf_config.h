// SPDX-License-Identifier: Apache-2.0
// What a GGUF file's metadata says about its model: the same ModelConfig that the original
// config.json would give, the tokenizer and the chat template. Plain functions.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "runtime/model_config.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/tokenizer.h"
#include "runtime/weights/checkpoint.h"
#include "runtime/weights/gguf_reader.h"

namespace tandem::runtime {

ModelConfig gguf_config(const GgufFile& file);
GgufVocabulary gguf_vocabulary(const GgufFile& file);

/// Whether the conversion interleaved the rows of each query and key head: row 2i + j of a head
/// was row j * head_dim / 2 + i. Known by architecture.
bool gguf_rows_are_permuted(const GgufFile& file);

/// The file's tensors under their Hugging Face names, with the row order of queries and keys
/// marked where the conversion changed it. ConfigError names a tensor that has no such name.
TensorMap gguf_tensors(const GgufFile& file);

ModelConfig read_gguf_config(const std::filesystem::path& path);
GgufVocabulary read_gguf_vocabulary(const std::filesystem::path& path);
/// `tokenizer.chat_template`, if the file has one, and `tokenizer.chat_template.tool_use`.
std::optional<TemplateTexts> read_gguf_chat_template(const std::filesystem::path& path);

}  // namespace tandem::runtime
