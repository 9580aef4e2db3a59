#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The long version of the test of a server under fire: soak.sh [REQUESTS] (default 50000). RESULT
# names a JSON file for what was counted.
set -euo pipefail
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export REQUESTS=${1:-50000} TANDEM_TEST_DEADLINE=${TANDEM_TEST_DEADLINE:-7200}
exec python3 "$folder/e2e/serve_under_fire_test.py"
