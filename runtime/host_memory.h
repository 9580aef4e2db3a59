// SPDX-License-Identifier: Apache-2.0
// What memory this process may still take on its host, and what it has taken. Plain functions.
#pragma once

#include <cstdint>
#include <filesystem>

namespace tandem::runtime {

/// Bytes that can be had without swapping: the host's MemAvailable, lowered to what the process's
/// control groups (version 2 and 1, all levels) leave; their page cache counts as free. `root` is
/// where `proc` and `sys` are, for tests. 0 when unknown.
std::int64_t available_host_bytes(const std::filesystem::path& root = "/");

/// Largest resident size of this process so far, mapped files included. 0 when unknown.
std::int64_t peak_resident_bytes(const std::filesystem::path& root = "/");

}  // namespace tandem::runtime
