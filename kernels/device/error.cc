// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/error.h"

namespace tandem::detail {

void throw_internal(const char* condition, const char* file, int line, const std::string& what) {
  throw InternalError(concat("internal fault at ", file, ":", line, ": ", condition,
                             what.empty() ? "" : ": ", what));
}

}  // namespace tandem::detail
