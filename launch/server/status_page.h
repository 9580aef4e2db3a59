// SPDX-License-Identifier: Apache-2.0
// The page at `/`: one HTML text without external resources that polls `/status` every second.
#pragma once

#include <string>

namespace tandem::launch {

std::string status_page();

}  // namespace tandem::launch
