// SPDX-License-Identifier: Apache-2.0
// Sub-commands and their options. Parsing is the same on every rank; a wrong option is a
// ConfigError that suggests the nearest one. Flag names follow vLLM where it has one.
#pragma once

#include <boost/program_options.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tandem::launch {

/// Parses `arguments` (without the program and command names) against `options`. Throws
/// ConfigError; `--help` is set in the result, never acted on.
boost::program_options::variables_map parse_options(
    const std::string& command, const std::vector<std::string>& arguments,
    const boost::program_options::options_description& options,
    const boost::program_options::positional_options_description& positional = {});

/// The same for a command that is to run: nothing when `--help` was given, which is printed to
/// standard output when `print_help` says so (one rank of a job should).
std::optional<boost::program_options::variables_map> parse_or_help(
    bool print_help, const std::string& command, const std::vector<std::string>& arguments,
    const boost::program_options::options_description& options);

/// The candidate that `word` most likely meant, or "" when none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

/// ConfigError that lists `allowed`, and suggests the nearest, unless `value` is one of them.
void require_one_of(const std::string& flag, const std::string& value,
                    const std::vector<std::string>& allowed);

/// ConfigError unless this host has cores for that many threads; 0 stands for a share of them.
void require_threads(int threads);

/// "512M", "4GiB", "1.5g" or plain bytes; ConfigError naming `flag` otherwise.
std::int64_t parse_bytes(const std::string& flag, const std::string& text);

}  // namespace tandem::launch
