// SPDX-License-Identifier: Apache-2.0
// Names the running operating system: equal for processes that share its memory, different for two
// hosts of the same name.
#pragma once

#include <string>

namespace tandem::comm {

/// Host name and boot identity.
std::string host_identity();

}  // namespace tandem::comm
