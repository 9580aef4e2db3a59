// SPDX-License-Identifier: Apache-2.0
#include "comm/verdict.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

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
    case StageKind::kDevice:
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

/// More than heartbeats are late: ranks that began to wait together are taken together.
constexpr double kTogether_s = 1;

/// Those of `which` for which `condition` holds.
template <typename Condition>
std::vector<std::size_t> those(const std::vector<std::size_t>& which, Condition condition) {
  std::vector<std::size_t> found;
  std::copy_if(which.begin(), which.end(), std::back_inserter(found), condition);
  return found;
}

/// What is to be said of ranks that wait for their devices, `devices`, one of them for too long.
std::string judge_devices(const std::vector<RankState>& ranks,
                          const std::vector<std::size_t>& devices, const Deadlines& deadlines) {
  const auto stuck = [](const char* why) {
    return [why](const RankState& rank) {
      return concat("made no progress for ", seconds(rank.stage_age_s), " in ", rank.stage, why);
    };
  };
  const auto known = those(devices, [&](std::size_t r) { return ranks[r].position.has_value(); });
  if (known.empty())
    return sentence(
        ranks,
        those(devices,
              [&](std::size_t r) { return ranks[r].stage_age_s > deadlines.step_s - kTogether_s; }),
        stuck(""));
  // How many collectives a rank is behind the first of `known`; negative: ahead.
  const auto behind = [&](std::size_t r) {
    return static_cast<std::int32_t>(ranks[known.front()].position->entered -
                                     ranks[r].position->entered);
  };
  const auto order = [&](std::size_t a, std::size_t b) { return behind(a) < behind(b); };
  const auto [ahead, last] = std::minmax_element(known.begin(), known.end(), order);
  if (behind(*ahead) < behind(*last))
    return sentence(ranks, those(known, [&](std::size_t r) { return behind(r) == behind(*last); }),
                    stuck(": its device did not come to the collective that others are in"));
  const auto own = those(
      known, [&](std::size_t r) { return ranks[r].position->entered == ranks[r].position->left; });
  // All of them: one may be in a collective that is not counted.
  if (own.size() > 1 && own.size() == known.size()) return sentence(ranks, own, stuck(""));
  if (!own.empty()) return sentence(ranks, own, stuck(": its device is in work of its own"));
  std::vector<std::size_t> missing;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (!ranks[r].left && std::find(known.begin(), known.end(), r) == known.end())
      missing.push_back(r);
  if (!missing.empty())
    return sentence(ranks, missing, [&](const RankState& rank) {
      return concat("is in ", rank.stage,
                    " and did not come to the collective that devices have waited in for ",
                    seconds(ranks[known.front()].stage_age_s));
    });
  return sentence(ranks, known, stuck(": the devices are all in the same collective"));
}

}  // namespace

std::optional<std::string> judge(const std::vector<RankState>& ranks, const Deadlines& deadlines) {
  std::vector<std::size_t> lost, silent, stuck, devices, waiting;
  bool somebody_works = false, host_works = false, device_is_stuck = false;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const RankState& rank = ranks[r];
    if (rank.left) continue;
    if (rank.connection_lost)
      lost.push_back(r);
    else if (rank.silent_s > deadlines.alive_s)
      silent.push_back(r);
    const bool device = rank.kind == StageKind::kDevice;
    const bool collective = rank.kind == StageKind::kCollective;
    if (device) devices.push_back(r);
    device_is_stuck |= device && expired(rank, deadlines);
    if (expired(rank, deadlines) && !device) (collective ? waiting : stuck).push_back(r);
    host_works |= rank.kind == StageKind::kStep || rank.kind == StageKind::kLoad;
    somebody_works |= device || host_works;
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
  // Devices may wait for one to which its host has given nothing yet.
  if (device_is_stuck && !host_works) return judge_devices(ranks, devices, deadlines);
  if (!waiting.empty() && !somebody_works)
    return sentence(ranks, waiting, [](const RankState& rank) {
      return concat("waited ", seconds(rank.stage_age_s), " in ", rank.stage,
                    ", which no other rank works towards");
    });
  return std::nullopt;
}

}  // namespace tandem::comm
