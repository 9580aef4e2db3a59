#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How much prefix reuse raises the rate of Mooncake's conversation trace that holds p99 TTFT 5 s and
# p99 TPOT 50 ms: serves with reuse off, then on, and plays a tenth of the trace's conversations (all
# their turns) at rising rates until one misses.
#   tests/bench/mooncake_reuse.sh TRACE [RATES [tandem serve options]]
#   tests/bench/mooncake_reuse.sh mooncake_fast25_conversation.jsonl "1 1.3 1.7 2.2 2.9" \
#     --model tests/bench/models/llama-3-8b --load-format dummy
# TANDEM names the program (default build/tandem), REQUESTS the requests of a rate (default 250), OUT
# the folder for results (default .).
set -euo pipefail
trace=$1
rates=${2:-"1 1.3 1.7 2.2 2.9"}
shift $(($# < 2 ? $# : 2))
tandem=${TANDEM:-build/tandem}
port=${PORT:-18777}
highest() { python3 -c 'import json, sys
print(next(r["value"] for r in json.load(open(sys.argv[1]))["rows"] if r["metric"] == "highest_rate_held"))' "$1"; }
for reuse in off on; do
  options=(--port "$port" "$@")
  [ $reuse = off ] && options+=(--no-enable-prefix-caching)
  "$tandem" serve "${options[@]}" &
  server=$!
  trap 'kill $server 2>/dev/null || true' EXIT
  until python3 -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:$port/health')" 2>/dev/null; do
    kill -0 $server
    sleep 0.5
  done
  # shellcheck disable=SC2086
  "$tandem" bench serve --base-url "http://127.0.0.1:$port" --trace "mooncake:$trace" \
    --trace-sample 0.1 --num-prompts "${REQUESTS:-250}" --request-rate $rates \
    --goodput ttft:5000 tpot:50 --stop-at-miss --name "reuse-$reuse" \
    --json "${OUT:-.}/mooncake-reuse-$reuse.json"
  kill $server
  wait $server || true
done
python3 -c "off, on = map(float, '$(highest "${OUT:-.}/mooncake-reuse-off.json") $(highest "${OUT:-.}/mooncake-reuse-on.json")'.split())
print(f'reuse off {off:g}, on {on:g} requests/s' + (f': {on / off:.2f}x' if off else ''))"
