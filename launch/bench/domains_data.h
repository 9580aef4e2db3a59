// SPDX-License-Identifier: Apache-2.0
// What `tandem bench domains` measures, as plain values: a victim beside an aggressor in three
// cells, and the checks that go with them. Filled by the CUDA part (`domains_cuda/`), shown by
// `domains.cc`; no CUDA here.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tandem::bench {

/// Idle: no aggressor. Same, separate: the physical domain of the aggressor's stream beside the
/// victim's, toggled by the stream's map in one process.
struct DomainsPair {
  std::string victim, aggressor, unit;
  std::vector<double> idle, same, separate;            ///< One value per repeat, interleaved.
  std::vector<double> traffic_same, traffic_separate;  ///< GB/s of the aggressor.
  int not_overlapped = 0;  ///< Samples whose traces do not show both running at the same time.
  int shared_sm = 0;       ///< Samples where the victim's traced block shared an SM.
};

/// A number by itself: the cost of changing domains, or stale words of a message test (0 is right).
struct DomainsFact {
  std::string name, metric, unit;
  std::vector<double> values;
};

struct DomainsData {
  std::vector<DomainsPair> pairs;
  std::vector<DomainsFact> facts;
  std::vector<std::string> notes;  ///< What this machine could not show, pairs left out for time.
};

struct DomainsOptions {
  std::vector<std::string> only;  ///< Parts of names of victims or aggressors; empty: all.
  int repeats = 31;
  double seconds = 80;                               ///< No pair is begun after this long.
  std::function<void(const DomainsPair&)> progress;  ///< Called after every pair.
};

/// What the two separate cells say. `effect`: same - idle exceeds three times the spread; only then
/// `removed` = (same - separate) / (same - idle) means something.
struct DomainsVerdict {
  double idle = 0, same = 0, separate = 0, spread = 0, removed = 0;
  bool effect = false;
};
DomainsVerdict judge(const DomainsPair& pair);

/// ConfigError when there is no GPU with several domains, or no CUDA in this build.
DomainsData measure_domains(const DomainsOptions& options);

/// A picture without external resources: a row per pair, a bar per cell on a logarithmic axis.
std::string domains_svg(const DomainsData& data, const std::string& machine);

}  // namespace tandem::bench
