#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds every fuzz_*.cc with clang, ASan and UBSan and runs each for SECONDS (default 60):
#   tests/fuzz/run.sh [SECONDS [NAME...]]      NAME: fuzz_tokenizer_json, ...
#   tests/fuzz/run.sh --build | --run [SECONDS [NAME...]]      only the one or the other
# Starts from tests/fuzz/corpus/NAME/ (inputs that once were found lie there too) with the words of
# tests/fuzz/NAME.dict; what it finds stays in the build folder. Exits non-zero when a program
# crashes, hangs (60 s) or takes over 2 GiB, and prints the input's path. FUZZ_BUILD names the build
# folder, FUZZ_SECONDS another default than 60. Fuzzing takes what other work leaves of the cores.
set -euo pipefail
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${FUZZ_BUILD:-$folder/../../build-fuzz}
build_wanted=1 run_wanted=1
case ${1:-} in
  --build) run_wanted=0; shift ;;
  --run) build_wanted=0; shift ;;
esac
seconds=${1:-${FUZZ_SECONDS:-60}}
shift || true
if [ $build_wanted = 1 ]; then
  clang=$(command -v clang++ || command -v clang++-14) || {
    echo "no clang++ found: install the packages clang and libclang-rt-14-dev" >&2
    exit 1
  }
  cmake -S "$folder" -B "$build" -G Ninja -DCMAKE_CXX_COMPILER="$clang" >/dev/null
  cmake --build "$build" -j "${FUZZ_JOBS:-2}"
fi
[ $run_wanted = 1 ] || exit 0
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for source in "$folder"/fuzz_*.cc; do names+=("$(basename "$source" .cc)"); done
fi
failed=0
for name in "${names[@]}"; do
  corpus=$build/corpus/$name
  mkdir -p "$corpus" "$build/findings"
  seeds=() options=()
  [ -d "$folder/corpus/$name" ] && seeds+=("$folder/corpus/$name")
  if [ "$name" = fuzz_chat_template ]; then
    seeds+=("$folder/../fixtures/templates/chats" "$build/expressions")
    python3 "$folder/expression_seeds.py" "$build/expressions"
  fi
  [ -f "$folder/$name.dict" ] && options+=("-dict=$folder/$name.dict")
  echo "== $name: $seconds s"
  log=$build/$name.log
  if UBSAN_OPTIONS=print_stacktrace=1 nice -n 19 "$build/$name" -max_total_time="$seconds" -timeout=60 \
    -rss_limit_mb=2048 -max_len=65536 -artifact_prefix="$build/findings/$name-" \
    "${options[@]}" "$corpus" "${seeds[@]}" >"$log" 2>&1; then
    tail -n 1 "$log"
  else
    grep -m 40 -A 30 -E "ERROR|runtime error|ALARM" "$log" || tail -n 20 "$log"
    echo "== $name FAILED: the whole log is $log, the input is in $build/findings/" >&2
    failed=1
  fi
done
exit $failed
