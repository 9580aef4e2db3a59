#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# on_gpus.sh RANKS COMMAND...: as mpirun.sh, where each rank has a GPU of its own; else skipped (77).
set -euo pipefail
gpus=$( (nvidia-smi -L || true) 2>/dev/null | grep -c '^GPU' || true)
if [ "$gpus" -lt "$1" ]; then
  echo "SKIPPED: $1 ranks, $gpus GPUs"
  exit 77
fi
exec "$(dirname "${BASH_SOURCE[0]}")/mpirun.sh" "$@"
