// SPDX-License-Identifier: Apache-2.0
// Text files that a user named, read whole. A folder, which opens like a file and fails only when
// it is read, and a file that fails half-way count as unreadable, so each caller says in its own
// words what to name instead. No state; thread-safe.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace tandem::runtime {

/// All bytes of `path` (a pipe is read to its end); nothing when they cannot be read.
std::optional<std::string> read_text_file(const std::filesystem::path& path);

}  // namespace tandem::runtime
