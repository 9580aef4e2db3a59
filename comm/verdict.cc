// SPDX-License-Identifier: Apache-2.0
#include "comm/verdict.h"

#include <cstdio>

#include "kernels/device/error.h"

namespace tandem::comm {
namespace {

std::string seconds(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", value);
  return text;
}

std::string name_of(const std::vector<RankState>& ranks, std::size_t r) {
  return concat("rank ", r, " (host ", ranks[r].host, ")");
}

double deadline_of(const RankState& rank, const Deadlines& deadlines) {
  if (rank.left) return 0;
  switch (rank.kind) {
    case StageKind::kLoad:
      return deadlines.load_s;
    case StageKind::kStep:
    case StageKind::kCollective:
      return deadlines.step_s;
    case StageKind::kIdle:
      return 0;
  }
  return 0;
}

bool expired(const RankState& rank, const Deadlines& deadlines) {
  const double deadline = deadline_of(rank, deadlines);
  return deadline > 0 && rank.stage_age_s > deadline;
}

/// The stages of the ranks that are not in `blamed`, equal ones together.
std::string others(const std::vector<RankState>& ranks, const std::vector<std::size_t>& blamed) {
  std::vector<std::pair<std::string, std::string>> groups;  // stage, ranks
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    bool skip = ranks[r].left;
    for (const std::size_t b : blamed) skip |= b == r;
    if (skip) continue;
    std::size_t g = 0;
    while (g < groups.size() && groups[g].first != ranks[r].stage) ++g;
    if (g == groups.size())
      groups.emplace_back(ranks[r].stage, concat("rank ", r));
    else
      groups[g].second += concat(", ", r);
  }
  std::string text;
  for (const auto& [stage, who] : groups) text += concat("; ", who, " in ", stage);
  return text;
}

}  // namespace

std::optional<std::string> judge(const std::vector<RankState>& ranks, const Deadlines& deadlines) {
  std::vector<std::size_t> lost, silent, stuck, waiting;
  bool somebody_works = false;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const RankState& rank = ranks[r];
    if (rank.left) continue;
    if (rank.connection_lost)
      lost.push_back(r);
    else if (rank.silent_s > deadlines.alive_s)
      silent.push_back(r);
    const bool collective = rank.kind == StageKind::kCollective;
    if (expired(rank, deadlines)) (collective ? waiting : stuck).push_back(r);
    somebody_works |= !collective && rank.kind != StageKind::kIdle;
  }
  std::string text;
  const auto list = [&](const std::vector<std::size_t>& blamed, const auto& what) {
    for (const std::size_t r : blamed)
      text += concat(text.empty() ? "" : "; ", name_of(ranks, r), what(ranks[r]));
    return text + others(ranks, blamed);
  };
  if (!lost.empty())
    return list(lost, [](const RankState& rank) {
      return concat(" ended unexpectedly, last seen in ", rank.stage);
    });
  if (!silent.empty())
    return list(silent, [](const RankState& rank) {
      return concat(" has been silent for ", seconds(rank.silent_s),
                    " (stopped, or its host or network is gone), last seen in ", rank.stage);
    });
  if (!stuck.empty())
    return list(stuck, [](const RankState& rank) {
      return concat(" made no progress for ", seconds(rank.stage_age_s), " in ", rank.stage);
    });
  if (!waiting.empty() && !somebody_works)
    return list(waiting, [](const RankState& rank) {
      return concat(" has waited ", seconds(rank.stage_age_s), " in ", rank.stage,
                    ", which no other rank works towards");
    });
  return std::nullopt;
}

}  // namespace tandem::comm
