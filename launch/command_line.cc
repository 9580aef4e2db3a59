// SPDX-License-Identifier: Apache-2.0
#include "launch/command_line.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "kernels/device/error.h"

namespace tandem::launch {
namespace po = boost::program_options;
namespace {

/// Levenshtein distance.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substitute, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string unknown_option(const std::string& command, const std::string& option,
                           const po::options_description& options) {
  std::vector<std::string> names;
  for (const auto& description : options.options())
    names.push_back("--" + description->long_name());
  const std::string meant = nearest(option.substr(0, option.find('=')), names);
  return concat("tandem ", command, " has no option ", option,
                meant.empty() ? concat("; see tandem ", command, " --help")
                              : concat("; did you mean ", meant, "?"));
}

/// The first word that is neither an option, nor a value, nor one of the `expected` lone words.
std::string stray_word(const std::vector<std::string>& arguments,
                       const po::options_description& options, int style, int expected) {
  const auto parsed = po::command_line_parser(arguments).options(options).style(style).run();
  for (const auto& option : parsed.options)
    if (option.position_key >= expected) return option.value.front();
  return "a word";
}

}  // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

po::variables_map parse_options(const std::string& command,
                                const std::vector<std::string>& arguments,
                                const po::options_description& options,
                                const po::positional_options_description& positional) {
  po::variables_map values;
  const auto style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
  try {
    po::store(po::command_line_parser(arguments)
                  .options(options)
                  .positional(positional)
                  .style(style)
                  .run(),
              values);
    po::notify(values);
  } catch (const po::unknown_option& error) {
    throw ConfigError(unknown_option(command, error.get_option_name(), options));
  } catch (const po::too_many_positional_options_error&) {
    throw ConfigError(concat(
        stray_word(arguments, options, style, static_cast<int>(positional.max_total_count())),
        " belongs to no option of tandem ", command, "; quote values with spaces, and see tandem ",
        command, " --help"));
  } catch (const po::error& error) {
    throw ConfigError(concat(error.what(), "; see tandem ", command, " --help"));
  }
  return values;
}

std::optional<po::variables_map> parse_or_help(bool print_help, const std::string& command,
                                               const std::vector<std::string>& arguments,
                                               const po::options_description& options) {
  po::variables_map values = parse_options(command, arguments, options);
  if (values.count("help") == 0) return values;
  if (print_help) std::fputs(concat(options).c_str(), stdout);
  return std::nullopt;
}

void require_threads(int threads) {
  const auto cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  TANDEM_REQUIRE(threads >= 0, "--threads must be at least 1, not ", threads);
  TANDEM_REQUIRE(threads <= cores, "--threads ", threads, ", but this host has ", cores,
                 cores == 1 ? " core" : " cores", "; use --threads ", cores, " or less");
}

void require_one_of(const std::string& flag, const std::string& value,
                    const std::vector<std::string>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  std::string list;
  for (const std::string& word : allowed) list += (list.empty() ? "" : ", ") + word;
  const std::string meant = nearest(value, allowed);
  throw ConfigError(concat(flag, " ", value, " is not known; use one of ", list,
                           meant.empty() ? "" : concat(" (did you mean ", meant, "?)")));
}

std::int64_t parse_bytes(const std::string& flag, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  std::string unit(end);
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  const std::vector<std::pair<std::string, int>> shifts = {
      {"", 0},     {"b", 0},  {"k", 10},   {"kib", 10}, {"m", 20},
      {"mib", 20}, {"g", 30}, {"gib", 30}, {"t", 40},   {"tib", 40}};
  for (const auto& [name, shift] : shifts)
    if (name == unit && end != text.c_str() && value >= 0 && std::isfinite(value) && value < 1e15)
      return static_cast<std::int64_t>(std::ldexp(value, shift));
  throw ConfigError(concat(flag, " ", text, " is no size; write for example ", flag, " 2GiB"));
}

}  // namespace tandem::launch
