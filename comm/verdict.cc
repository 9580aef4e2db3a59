// SPDX-License-Identifier: Apache-2.0
#include "comm/verdict.h"

#include <algorithm>
#include <cstdio>

#include "kernels/device/error.h"

namespace tandem::comm {
namespace {

std::string seconds(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", value);
  return text;
}

/// "rank 1" or "ranks 1, 2".
std::string name_of(const std::vector<std::size_t>& which) {
  std::string text = which.size() == 1 ? "rank " : "ranks ";
  for (const std::size_t r : which) text += concat(r == which.front() ? "" : ", ", r);
  return text;
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

/// Ranks for which `key` gives the same text, together; groups in order of their first rank.
template <typename Key>
std::vector<std::vector<std::size_t>> groups_of(const std::vector<std::size_t>& which, Key key) {
  std::vector<std::vector<std::size_t>> groups;
  for (const std::size_t r : which) {
    std::size_t g = 0;
    while (g < groups.size() && key(groups[g].front()) != key(r)) ++g;
    if (g == groups.size()) groups.emplace_back();
    groups[g].push_back(r);
  }
  return groups;
}

/// Who is to blame, host by host, with `what` it did; then what the other ranks do.
template <typename What>
std::string sentence(const std::vector<RankState>& ranks, const std::vector<std::size_t>& blamed,
                     What what) {
  std::string text;
  for (const auto& group : groups_of(blamed, [&](std::size_t r) { return ranks[r].host; }))
    text += concat(text.empty() ? "" : "; ", name_of(group), " (host ", ranks[group.front()].host,
                   ") ", what(ranks[group.front()]));
  std::vector<std::size_t> others;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (!ranks[r].left && std::find(blamed.begin(), blamed.end(), r) == blamed.end())
      others.push_back(r);
  for (const auto& group : groups_of(others, [&](std::size_t r) { return ranks[r].stage; }))
    text += concat("; ", name_of(group), " in ", ranks[group.front()].stage);
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
  if (!lost.empty())
    return sentence(ranks, lost, [](const RankState& rank) {
      return concat("ended unexpectedly, last seen in ", rank.stage);
    });
  if (!silent.empty())
    return sentence(ranks, silent, [](const RankState& rank) {
      return concat("silent for ", seconds(rank.silent_s),
                    " (stopped, or its host or network is gone), last seen in ", rank.stage);
    });
  if (!stuck.empty())
    return sentence(ranks, stuck, [](const RankState& rank) {
      return concat("made no progress for ", seconds(rank.stage_age_s), " in ", rank.stage);
    });
  if (!waiting.empty() && !somebody_works)
    return sentence(ranks, waiting, [](const RankState& rank) {
      return concat("waited ", seconds(rank.stage_age_s), " in ", rank.stage,
                    ", which no other rank works towards");
    });
  return std::nullopt;
}

}  // namespace tandem::comm
