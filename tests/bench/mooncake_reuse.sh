#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How much prefix reuse raises the rate of Mooncake's conversation trace that holds p99 TTFT 5 s and
# p99 TPOT 50 ms: plays conversations of the trace (all their turns) to a server with reuse off, then
# on, at rising rates until one misses.
#   tests/bench/mooncake_reuse.sh TRACE RATES_OFF RATES_ON [tandem serve options]
#   tests/bench/mooncake_reuse.sh mooncake_fast25_conversation.jsonl "2 2.4" "2.6 3.2" \
#     --model tests/bench/models/llama-3-8b --load-format dummy \
#     --max-model-len 32768 --max-num-seqs 128 --max-num-mixed-tokens 512
# A rate lasts REQUESTS / rate seconds (default 80 requests; those longer than --max-model-len are
# left out). TANDEM names the program (default build/tandem), OUT the folder for results (default
# .), SAMPLE the share of the trace's conversations (default 0.1).
set -euo pipefail
trace=$1 rates_off=$2 rates_on=$3
shift 3
tandem=${TANDEM:-build/tandem}
port=${PORT:-18777}
out=${OUT:-.}
server=
trap 'if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; fi' EXIT
for reuse in off on; do
  options=(--port "$port" "$@")
  rates=$rates_on
  if [ $reuse = off ]; then
    options+=(--no-enable-prefix-caching)
    rates=$rates_off
  fi
  "$tandem" serve "${options[@]}" &
  server=$!
  until python3 -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:$port/health')" 2>/dev/null; do
    kill -0 "$server"
    sleep 0.2
  done
  # shellcheck disable=SC2086
  "$tandem" bench serve --base-url "http://127.0.0.1:$port" --trace "mooncake:$trace" \
    --trace-sample "${SAMPLE:-0.1}" --num-prompts "${REQUESTS:-80}" --request-rate $rates \
    --goodput ttft:5000 tpot:50 --stop-at-miss --name "reuse-$reuse" \
    --json "$out/mooncake_reuse_$reuse.json"
  kill "$server"
  wait "$server" || true
  server=
done
# Held on a grid, the ratio is known between two bounds; the lower one is what was shown.
python3 - "$out" "$rates_off" "$rates_on" <<'PY'
import json
import sys


def held(reuse, rates):
    rows = json.load(open(f"{sys.argv[1]}/mooncake_reuse_{reuse}.json"))["rows"]
    found = [row["value"] for row in rows if row["metric"] == "highest_rate_held"]
    most = found[0] if found else 0.0
    return most, min([rate for rate in rates if rate > most], default=None)


off, off_missed = held("off", [float(rate) for rate in sys.argv[2].split()])
on, on_missed = held("on", [float(rate) for rate in sys.argv[3].split()])
print(f"reuse off holds {off:g} requests/s and misses {off_missed}, on holds {on:g} and misses {on_missed}")
if off_missed and on:
    print(f"reuse raises the rate by at least {on / off_missed:.2f}x")
if off and on_missed:
    print(f"and by less than {on_missed / off:.2f}x")
PY
