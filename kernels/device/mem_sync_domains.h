// SPDX-License-Identifier: Apache-2.0
// Whether communication runs in a memory synchronization domain of its own, so that a fence of a
// compute kernel does not wait for slow peer writes (CUDA programming guide, "Memory
// Synchronization Domains"; Hopper has 4 physical domains, older GPUs 1).
#pragma once

#include <cstdint>
#include <string_view>

namespace tandem {

enum class MemSyncDomains : std::uint8_t {
  kAuto,      ///< Separate where the GPU has more than one domain.
  kSeparate,  ///< Compute in physical domain 0, the comm stream in 1.
  kShared,    ///< All in domain 0: for A/B measurement.
};

/// ConfigError for anything but auto, separate, shared.
MemSyncDomains parse_mem_sync_domains(std::string_view text);
std::string_view name(MemSyncDomains domains);

}  // namespace tandem
