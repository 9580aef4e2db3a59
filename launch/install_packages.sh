#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install_packages.sh [build] [test] [download]: Debian packages that Tandem is built with, tested
# with, or that download a model.
# Installs only what is missing; removes nothing. Root is needed only when something is missing.
set -euo pipefail

packages=(ca-certificates python3)
for set in "$@"; do
  case $set in
    build) packages+=(g++ cmake ninja-build openmpi-bin libopenmpi-dev libboost1.81-dev
      libboost-program-options1.81-dev libdnnl-dev libpcre2-dev libutf8proc-dev libhwloc-dev) ;;
    test) packages+=(libgtest-dev libgmock-dev python3-venv clang-format-14 iproute2 slurm-wlm
      munge clang-14 libclang-rt-14-dev chromium) ;;
    download) python3 -m pip --version >/dev/null 2>&1 || packages+=(python3-pip) ;;
    *) echo "install_packages.sh: no package set $set; use build, test or download" >&2; exit 2 ;;
  esac
done

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' ||
    missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -ne 0 ]; then
  echo "these packages are missing; install them as root: apt-get install ${missing[*]}" >&2
  exit 1
fi
echo "installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# Boost 1.81 excludes the development files of 1.74: never remove anything for it.
apt-get install -y -qq --no-remove --no-install-recommends "${missing[@]}" >&2
