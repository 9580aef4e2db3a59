// SPDX-License-Identifier: Apache-2.0
// What this build is: version and commit, as `tandem --version` prints them.
#pragma once

#include <string>

namespace tandem::launch {

std::string version_text();

/// The commit that this program was built from, "-dirty" appended when files differed.
std::string build_commit();

}  // namespace tandem::launch
