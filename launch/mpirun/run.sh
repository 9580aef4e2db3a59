#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh HOSTFILE [-n RANKS] [-i INTERFACE] -- COMMAND...: a tandem command on several hosts.
#   launch/mpirun/run.sh hosts -i eth0 -- generate --model /models/llama --prompt Hello
# TANDEM names the program (default: build/tandem of this checkout); MPIRUN_OPTIONS adds options.
set -euo pipefail

usage() {
  echo "usage: run.sh HOSTFILE [-n RANKS] [-i INTERFACE] -- COMMAND..." >&2
  exit 2
}

if [ $# -lt 1 ] || [ ! -r "$1" ]; then
  echo "run.sh: cannot read the hostfile '${1:-}'" >&2
  usage
fi
hostfile=$1
shift
ranks='' interface=''
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
    -n) ranks=${2:?-n needs a number of ranks} ;;
    -i) interface=${2:?-i needs the name of an interface} ;;
    *) usage ;;
  esac
  shift 2
done
[ $# -ge 2 ] || usage
shift

slots=$(sed -nE 's/^[[:space:]]*[^#[:space:]].*slots=([0-9]+).*/\1/p' "$hostfile")
total=$(echo "$slots" | awk '{ sum += $1 } END { print sum }')
per_host=$(echo "$slots" | head -n1)
program=${TANDEM:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/build/tandem}

# MPI carries host bytes only: shared memory and TCP are right on every fabric.
options=(--mca pml ob1 --mca btl "self,vader,tcp")
# Name the network between the hosts: MPI may try docker0 or virbr0 and hang.
if [ -n "$interface" ]; then
  options+=(--mca btl_tcp_if_include "$interface" --mca oob_tcp_if_include "$interface"
    -x "NCCL_SOCKET_IFNAME=$interface")
fi
# Ranks bind themselves; mpirun would give each rank one core.
options+=(--bind-to none)
for name in LD_LIBRARY_PATH NCCL_DEBUG NCCL_IB_HCA NCCL_NVLS_ENABLE OMP_NUM_THREADS; do
  [ -z "${!name:-}" ] || options+=(-x "$name")
done
# shellcheck disable=SC2086  # MPIRUN_OPTIONS holds several words
exec mpirun --hostfile "$hostfile" -n "${ranks:-$total}" --map-by "ppr:$per_host:node" \
  "${options[@]}" ${MPIRUN_OPTIONS:-} "$program" "$@"
