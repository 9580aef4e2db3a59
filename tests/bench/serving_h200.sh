#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The serving bars of one H200 with Llama 3 8B's shape: 256 concurrent requests of 1024 + 1024 tokens
# in a steady state (about 60 s: 10 s of prompts, 2 + 30 s counted), and what prefix reuse is worth on
# Mooncake's trace (about 140 s: two servers, 80 requests at each of four rates).
#   tests/bench/serving_h200.sh steady | mooncake TRACE
# TANDEM names the program, OUT the folder for results; MODEL another model (its options follow).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
what=$1
shift
export TANDEM=${TANDEM:-$root/build/tandem}
model=(--model "${MODEL:-$root/tests/bench/models/llama-3-8b}" --load-format dummy)
case $what in
  steady)
    exec timeout 120 "$TANDEM" bench throughput "${model[@]}" --steady-state \
      --max-concurrency "${CONCURRENCY:-256}" --max-num-seqs "${CONCURRENCY:-256}" \
      --input-len 1024 --output-len 1024 --duration "${DURATION:-30}" --warmup 2 \
      --output-json "${OUT:-.}/throughput-h200.json" "$@"
    ;;
  mooncake)
    trace=$1
    shift
    # Prefill chunks of 512 beside answers: with more a step at 32k tokens of context takes 50 ms.
    REQUESTS=${REQUESTS:-80} exec timeout 300 bash "$root/tests/bench/mooncake_reuse.sh" "$trace" \
      "${RATES_OFF:-2 2.4}" "${RATES_ON:-2.6 3.2}" "${model[@]}" --max-model-len "${MAX_MODEL_LEN:-32768}" \
      --max-num-seqs 128 --max-num-mixed-tokens 512 "$@"
    ;;
  *)
    echo "serving_h200.sh steady | mooncake TRACE, not $what" >&2
    exit 2
    ;;
esac
