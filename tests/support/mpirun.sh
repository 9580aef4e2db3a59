#!/usr/bin/env bash
# mpirun.sh RANKS COMMAND...: runs COMMAND on RANKS local ranks the way the tests need it: as root,
# more ranks than cores, yielding while idle, and ended after a deadline.
set -euo pipefail
ranks=$1
shift
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=0}  # Open MPI leaks
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
exec timeout -k 5 "${TANDEM_TEST_DEADLINE:-240}" mpirun -n "$ranks" --oversubscribe --bind-to none "$@"
