// SPDX-License-Identifier: Apache-2.0
// Reads the rotary embedding of a model from config.json: `rope_theta` + `rope_scaling` (files up
// to transformers 4) or `rope_parameters` (transformers 5). Plain functions.
#pragma once

#include <cstdint>

#include "runtime/json_file.h"
#include "runtime/model_config.h"

namespace tandem::runtime {

/// `config` is the whole config.json; `parameters` its rope object, or null when it has none.
/// `head_dim` and `max_position` are the model's. An unknown `rope_type` is a ConfigError.
RopeConfig read_rope(const JsonFields& config, const boost::json::object* parameters,
                     double default_theta, std::int64_t head_dim, std::int64_t max_position);

/// The rope object of config.json: `rope_scaling` or `rope_parameters`; null when absent.
const boost::json::object* rope_parameters(const JsonFields& config);

}  // namespace tandem::runtime
