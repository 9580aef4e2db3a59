// SPDX-License-Identifier: Apache-2.0
// The version of this build, as `tandem --version` prints it.
#pragma once

#include <string>

namespace tandem::launch {

std::string version_text();

}  // namespace tandem::launch
