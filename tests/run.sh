#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the tests need, builds, and runs every test that needs no GPU. Ends with CTest's
# summary. BUILD names the build folder (default: build).
#   tests/run.sh [ctest arguments]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${BUILD:-build}

bash launch/install_packages.sh build test
options=(-DTANDEM_TESTS=ON)
[ -f "$build/build.ninja" ] || options+=(-DTANDEM_PRECOMPILE=ON)
cmake -S . -B "$build" -G Ninja "${options[@]}" >/dev/null
cmake --build "$build"
exec ctest --test-dir "$build" --output-on-failure --no-tests=error -LE gpu \
  -j "$((2 * $(nproc)))" "$@"
