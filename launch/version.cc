// SPDX-License-Identifier: Apache-2.0
#include "launch/version.h"

#include "launch/build_commit.inc"

namespace tandem::launch {

std::string version_text() { return "tandem " TANDEM_VERSION " (" + build_commit() + ")"; }

std::string build_commit() { return kBuildCommit; }

}  // namespace tandem::launch
