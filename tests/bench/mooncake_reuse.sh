#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How much prefix reuse raises the rate of Mooncake's conversation trace that holds p99 TTFT 5 s and
# p99 TPOT 50 ms. Plays a part of the trace to a server with reuse off and bisects for the highest
# rate that holds; then the same with reuse on, where the first rate tried is AIM times the lowest
# that missed before. Prints each rate's p99 and the ratio, known between two bounds.
#   tests/bench/mooncake_reuse.sh TRACE [tandem serve options]
#   tests/bench/mooncake_reuse.sh mooncake_fast25_conversation.jsonl \
#     --model tests/bench/models/llama-3-8b --load-format dummy --max-model-len 32768
# What is played, from the environment (requests longer than --max-model-len count nowhere):
#   SAMPLE    share of the trace's conversations, all their turns (0.1): what one of ten servers gets
#             when a router sends every conversation to one server. So the share of prompt tokens
#             that the cache of one H200 (0.8 million tokens) still knows is that of the whole trace
#             in a cache without end, 38 %; with all conversations on one server it would be 8 %
#   SKIP      requests passed over before the first (800), REQUESTS played at each rate (100)
#   HISTORY   of those passed over, sent before each rate with reuse on (100), so that the cache is
#             as it is in the middle of the trace and not empty
# LOW and HIGH bound the search with reuse off (2 3.4 requests/s), AIM is the ratio to show first
# (1.3), OFF_SECONDS and ON_SECONDS end the two searches (140 130), each after TOLERANCE (0.07).
# LATENCY holds the objectives (ttft:5000 tpot:50). TANDEM names the program (build/tandem), OUT the
# folder for results (.).
set -euo pipefail
command="tests/bench/mooncake_reuse.sh $*"
trace=$1
shift
tandem=${TANDEM:-build/tandem}
out=${OUT:-.}
skip=${SKIP:-800}
url=
server=
trap 'if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; fi' EXIT

start() { # options of tandem serve
  "$tandem" serve --port 0 "$@" 2>"$out/mooncake_server.log" &
  server=$!
  until url=$(grep -o 'http://127[0-9.]*:[0-9]*' "$out/mooncake_server.log"); do
    kill -0 "$server" 2>/dev/null || { cat "$out/mooncake_server.log" >&2; exit 1; }
    sleep 0.2
  done
}

stop() {
  kill "$server"
  wait "$server" || true
  server=
}

search() { # off|on SECONDS RATES... ; the rest of the line: more options
  local reuse=$1 seconds=$2 rates=$3
  shift 3
  # shellcheck disable=SC2086
  "$tandem" bench serve --base-url "$url" --trace "mooncake:$trace" \
    --trace-sample "${SAMPLE:-0.1}" --skip-prompts "$skip" --num-prompts "${REQUESTS:-100}" \
    --find-rate $rates --rate-tolerance "${TOLERANCE:-0.07}" --time-budget "$seconds" \
    --goodput ${LATENCY:-ttft:5000 tpot:50} --name "reuse-$reuse" \
    --json "$out/mooncake_reuse_$reuse.json" "$@"
}

bound() { # off|on METRIC: its value, or nothing
  python3 - "$out/mooncake_reuse_$1.json" "$2" <<'PY'
import json
import sys
print(*[row["value"] for row in json.load(open(sys.argv[1]))["rows"] if row["metric"] == sys.argv[2]])
PY
}

start "$@" --no-enable-prefix-caching
search off "${OFF_SECONDS:-140}" "${LOW:-2} ${HIGH:-3.4}"
stop
rates=$(python3 - "$(bound off highest_rate_held)" "$(bound off lowest_rate_missed)" \
  "${AIM:-1.3}" "${HIGH:-3.4}" <<'PY'
import math
import sys
held = float(sys.argv[1])
missed = float(sys.argv[2] or sys.argv[4])
first = math.ceil(100 * missed * float(sys.argv[3])) / 100
print(held or missed / 4, 1.5 * first, first)
PY
)
start "$@"
search on "${ON_SECONDS:-130}" "$rates" --prefix-history "${HISTORY:-100}"
stop
python3 "$(dirname "${BASH_SOURCE[0]}")/mooncake_ratio.py" "$out/mooncake_reuse_off.json" \
  "$out/mooncake_reuse_on.json" "$out/mooncake_reuse.json" "$command"
