// SPDX-License-Identifier: Apache-2.0
// What a user is told: the text of the ConfigError that some code throws.
#pragma once

#include <string>

#include "kernels/device/error.h"

namespace tandem::testing {

/// The text of the ConfigError that `action` throws; empty when it throws none.
template <typename Action>
std::string config_error(const Action& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace tandem::testing
