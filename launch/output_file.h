// SPDX-License-Identifier: Apache-2.0
// Files that options name for results. What cannot be written is said before the work that fills
// it, and what is there already stays until then. Plain functions; relative paths are rank 0's.
#pragma once

#include <string>
#include <vector>

#include "launch/command.h"

namespace tandem::launch {

/// An empty path and "-" (standard output) are no files.
struct OutputFile {
  std::string flag, path;
};

/// ConfigError when one cannot be written, or two flags name the same file.
void check_outputs(const std::vector<OutputFile>& files);
/// The same on rank 0, for all ranks: collective.
void check_outputs(Ranks& ranks, const std::vector<OutputFile>& files);

/// Writes `text` to `path`; ConfigError naming `flag` when it cannot be written.
void write_text_file(const std::string& flag, const std::string& path, const std::string& text);

}  // namespace tandem::launch
