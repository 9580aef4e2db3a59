// SPDX-License-Identifier: Apache-2.0
#include "launch/version.h"

namespace tandem::launch {

std::string version_text() { return "tandem 0.1.0"; }

}  // namespace tandem::launch
