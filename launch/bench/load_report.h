// SPDX-License-Identifier: Apache-2.0
// What the records of a run say, in vLLM's words: TTFT from sending to the first token, TPOT the
// time after it per further token, ITL every gap between two pieces, E2EL to the last token. Added:
// how long requests waited in the client, tokens/s per user, and the fluidity index. Objectives are
// judged from the moment a request was due: a client that holds requests back hides nothing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launch/bench/load_client.h"

namespace tandem::launch {

/// Milliseconds; 0: not asked for.
struct Objectives {
  double ttft_ms = 0, tpot_ms = 0, e2el_ms = 0;
  bool any() const { return ttft_ms > 0 || tpot_ms > 0 || e2el_ms > 0; }
};
/// Of "ttft:5000" "tpot:50", as vLLM's --goodput; ConfigError for anything else.
Objectives parse_objectives(const std::vector<std::string>& words);

struct LoadReport {
  std::int64_t completed = 0, failed = 0, good = 0;  ///< Good: all objectives met.
  std::int64_t abandoned = 0;                        ///< Not ended: the run was cut short.
  double seconds = 0;                                ///< First sending to last token.
  std::int64_t prompt_tokens = 0, output_tokens = 0;
  std::vector<double> ttft_ms, tpot_ms, itl_ms, e2el_ms, queue_ms, user_tokens_per_s;  ///< Sorted.
  std::vector<double> due_ttft_ms, due_e2el_ms;  ///< With the wait in the client. Sorted.
  double mean_running = 0;  ///< Requests between sending and last token, over time.
  std::int64_t peak_running = 0, peak_queued = 0;
  double fluidity = 0;  ///< Share of token deadlines met; 0 without objectives.
  std::map<std::string, std::int64_t> errors;

  double per_s(double amount) const { return seconds > 0 ? amount / seconds : 0; }
};
/// Latencies of the requests that were answered.
LoadReport summarise(const std::vector<RequestRecord>& records, const Objectives& objectives);

/// Requests that are known to have missed an objective at `now_s`; those that failed not counted.
struct Misses {
  std::int64_t ttft = 0, tpot = 0, e2el = 0;
};
Misses count_misses(const std::vector<RequestRecord>& records, double now_s,
                    const Objectives& objectives);
/// True when so many of `requests` have missed an objective that its p99 cannot hold any more,
/// whatever becomes of the others.
bool hopeless(const Misses& misses, std::size_t requests);

/// Deadlines met and missed by one answer. The first token is due `ttft_s` after the request, each
/// further one `tbt_s` after the deadline before it: earliness is kept as slack. A late token
/// misses all deadlines that passed until it came, and deadlines start anew from it. (Agrawal et
/// al. 2024, "Etalon: Holistic Performance Evaluation Framework for LLM Inference Systems".)
struct Deadlines {
  std::int64_t met = 0, missed = 0;
};
Deadlines count_deadlines(const RequestRecord& record, double ttft_s, double tbt_s);

}  // namespace tandem::launch
