// SPDX-License-Identifier: Apache-2.0
#include "launch/bench/load_report.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "kernels/device/error.h"

namespace tandem::launch {
namespace {

/// The most intervals that overlap anywhere.
std::int64_t peak(std::vector<std::pair<double, double>> intervals) {
  std::vector<std::pair<double, int>> events;
  for (const auto& [begin, end] : intervals) {
    events.emplace_back(begin, 1);
    events.emplace_back(end, -1);
  }
  std::sort(events.begin(), events.end());
  std::int64_t open = 0, most = 0;
  for (const auto& event : events) most = std::max(most, open += event.second);
  return most;
}

void add_record(const RequestRecord& record, const Objectives& objectives, LoadReport& report) {
  ++report.completed;
  report.prompt_tokens += record.prompt_tokens;
  report.output_tokens += record.output_tokens;
  const double ttft = 1e3 * (record.pieces.front().at_s - record.sent_s);
  const double e2el = 1e3 * (record.pieces.back().at_s - record.sent_s);
  report.ttft_ms.push_back(ttft);
  report.e2el_ms.push_back(e2el);
  const double queue = 1e3 * (record.sent_s - record.scheduled_s);
  report.due_ttft_ms.push_back(queue + ttft);
  report.due_e2el_ms.push_back(queue + e2el);
  double tpot = 0;
  if (record.output_tokens > 1) {
    tpot = (e2el - ttft) / static_cast<double>(record.output_tokens - 1);
    report.tpot_ms.push_back(tpot);
    if (tpot > 0) report.user_tokens_per_s.push_back(1e3 / tpot);
  }
  for (std::size_t i = 1; i < record.pieces.size(); ++i)
    report.itl_ms.push_back(1e3 * (record.pieces[i].at_s - record.pieces[i - 1].at_s));
  const auto met = [](double value, double limit) { return limit <= 0 || value <= limit; };
  if (met(queue + ttft, objectives.ttft_ms) && met(tpot, objectives.tpot_ms) &&
      met(queue + e2el, objectives.e2el_ms))
    ++report.good;
}

}  // namespace

Objectives parse_objectives(const std::vector<std::string>& words) {
  Objectives objectives;
  for (const std::string& word : words) {
    const std::size_t colon = word.find(':');
    const std::string name = word.substr(0, colon);
    double* value = name == "ttft"   ? &objectives.ttft_ms
                    : name == "tpot" ? &objectives.tpot_ms
                    : name == "e2el" ? &objectives.e2el_ms
                                     : nullptr;
    char* end = nullptr;
    const double ms = colon == std::string::npos ? 0 : std::strtod(word.c_str() + colon + 1, &end);
    TANDEM_REQUIRE(value != nullptr && ms > 0 && std::isfinite(ms) && *end == '\0', "--goodput ",
                   word,
                   " is no objective; write milliseconds, for example --goodput ttft:5000 tpot:50");
    *value = ms;
  }
  return objectives;
}

LoadReport summarise(const std::vector<RequestRecord>& records, const Objectives& objectives) {
  LoadReport report;
  std::vector<std::pair<double, double>> running, queued;
  double first_sent = INFINITY, last = 0, busy = 0;
  Deadlines deadlines;
  for (const RequestRecord& record : records) {
    if (record.abandoned) {
      ++report.abandoned;
      continue;
    }
    first_sent = std::min(first_sent, record.sent_s);
    last = std::max(last, record.end_s);
    busy += record.end_s - record.sent_s;
    running.emplace_back(record.sent_s, record.end_s);
    queued.emplace_back(record.scheduled_s, record.sent_s);
    report.queue_ms.push_back(1e3 * (record.sent_s - record.scheduled_s));
    if (!record.ok()) {
      ++report.failed;
      ++report.errors[record.error];
      continue;
    }
    add_record(record, objectives, report);
    if (objectives.ttft_ms <= 0 || objectives.tpot_ms <= 0) continue;
    const Deadlines mine =
        count_deadlines(record, objectives.ttft_ms / 1e3, objectives.tpot_ms / 1e3);
    deadlines.met += mine.met;
    deadlines.missed += mine.missed;
  }
  report.seconds = std::isfinite(first_sent) ? last - first_sent : 0;
  report.mean_running = report.per_s(busy);
  report.peak_running = peak(std::move(running));
  report.peak_queued = peak(std::move(queued));
  if (deadlines.met + deadlines.missed > 0)
    report.fluidity =
        static_cast<double>(deadlines.met) / static_cast<double>(deadlines.met + deadlines.missed);
  for (auto* list :
       {&report.ttft_ms, &report.tpot_ms, &report.itl_ms, &report.e2el_ms, &report.queue_ms,
        &report.due_ttft_ms, &report.due_e2el_ms, &report.user_tokens_per_s})
    std::sort(list->begin(), list->end());
  return report;
}

Misses count_misses(const std::vector<RequestRecord>& records, double now_s,
                    const Objectives& objectives) {
  const auto late = [](double seconds, double limit_ms) {
    return limit_ms > 0 && 1e3 * seconds > limit_ms ? 1 : 0;
  };
  Misses misses;
  for (const RequestRecord& record : records) {
    const bool ended = record.end_s > 0;
    if (ended && !record.ok()) continue;
    const double last = ended ? record.end_s : now_s;
    const double first = record.pieces.empty() ? now_s : record.pieces.front().at_s;
    misses.ttft += late(first - record.scheduled_s, objectives.ttft_ms);
    misses.e2el += late(last - record.scheduled_s, objectives.e2el_ms);
    if (ended && record.output_tokens > 1)
      misses.tpot +=
          late((last - first) / static_cast<double>(record.output_tokens - 1), objectives.tpot_ms);
  }
  return misses;
}

bool hopeless(const Misses& misses, std::size_t requests) {
  if (requests == 0) return false;
  // The value at this place of all, in order, is at most the p99.
  const std::size_t place = 99 * (requests - 1) / 100;
  const std::int64_t most = std::max({misses.ttft, misses.tpot, misses.e2el});
  return most >= static_cast<std::int64_t>(requests - place);
}

Deadlines count_deadlines(const RequestRecord& record, double ttft_s, double tbt_s) {
  Deadlines deadlines;
  double due_s = record.scheduled_s + ttft_s;
  for (const AnswerPiece& piece : record.pieces) {
    for (std::int64_t i = 0; i < piece.tokens; ++i) {
      if (piece.at_s <= due_s) {
        ++deadlines.met;
        due_s += tbt_s;
      } else {
        deadlines.missed += 1 + static_cast<std::int64_t>((piece.at_s - due_s) / tbt_s);
        due_s = piece.at_s + tbt_s;
      }
    }
  }
  return deadlines;
}

}  // namespace tandem::launch
