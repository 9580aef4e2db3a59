// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/mem_sync_domains.h"

#include <gtest/gtest.h>

#include "kernels/device/error.h"

namespace tandem {
namespace {

TEST(MemSyncDomains, EveryNameParsesBack) {
  for (const char* text : {"auto", "separate", "shared"})
    EXPECT_EQ(name(parse_mem_sync_domains(text)), text);
}

TEST(MemSyncDomains, UnknownNameSaysWhatToWrite) {
  try {
    parse_mem_sync_domains("both");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("--mem-sync-domains=auto"), std::string::npos);
  }
}

}  // namespace
}  // namespace tandem
