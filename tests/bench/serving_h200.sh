#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The serving bars of one H200 with Llama 3 8B's shape: 256 concurrent requests of 1024 + 1024 tokens
# in a steady state (about 60 s: 10 s of prompts, 2 + 30 s counted), and what prefix reuse is worth on
# Mooncake's trace (at most 330 s, see mooncake_reuse.sh for what can be set).
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
    # Prefill chunks of 1024 beside answers: a step then takes 25 to 40 ms, and 50 are allowed.
    exec timeout 330 bash "$root/tests/bench/mooncake_reuse.sh" "$trace" "${model[@]}" \
      --max-model-len "${MAX_MODEL_LEN:-32768}" --max-num-seqs 128 \
      --max-num-mixed-tokens "${MIXED_TOKENS:-1024}" "$@"
    ;;
  *)
    echo "serving_h200.sh steady | mooncake TRACE, not $what" >&2
    exit 2
    ;;
esac
