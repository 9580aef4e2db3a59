// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/mem_sync_domains.h"

#include "kernels/device/error.h"

namespace tandem {

MemSyncDomains parse_mem_sync_domains(std::string_view text) {
  for (const auto domains :
       {MemSyncDomains::kAuto, MemSyncDomains::kSeparate, MemSyncDomains::kShared})
    if (text == name(domains)) return domains;
  throw ConfigError(concat("--mem-sync-domains=", text,
                           " is not known: use --mem-sync-domains=auto, separate or shared"));
}

std::string_view name(MemSyncDomains domains) {
  switch (domains) {
    case MemSyncDomains::kSeparate:
      return "separate";
    case MemSyncDomains::kShared:
      return "shared";
    case MemSyncDomains::kAuto:
      break;
  }
  return "auto";
}

}  // namespace tandem
