#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Folders include only downwards (see README, "Folders"), and only CUDA files see CUDA headers."""
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(os.environ.get("TANDEM_SOURCE", pathlib.Path(__file__).parents[2]))
ALLOWED = {
    "kernels": {"kernels"},
    "comm": {"comm", "kernels"},
    "kvcache": {"kvcache", "kernels"},
    "parallel": {"parallel", "comm", "kernels"},
    "runtime": {"runtime", "parallel", "kvcache", "comm", "kernels"},
    "launch": {"launch", "runtime", "parallel", "kvcache", "comm", "kernels"},
}
CUDA_HEADERS = re.compile(r"^(cuda|cublas|nccl|nvtx|cupti|cooperative_groups|mma\.h)")
SUFFIXES = {".h", ".cc", ".inl", ".cu", ".cuh"}


def is_cuda_file(path):
    return "cuda" in str(path) or "nccl" in path.name or "peer" in path.name or path.suffix in {".cu", ".cuh"}


def faults():
    for folder, allowed in ALLOWED.items():
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in SUFFIXES:
                continue
            relative = path.relative_to(ROOT)
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
                if not match:
                    continue
                target = match.group(1)
                top = target.split("/")[0]
                if top in ALLOWED and top not in allowed:
                    yield f"{relative}:{number}: {folder} must not include {target}"
                if CUDA_HEADERS.match(target) and not is_cuda_file(relative):
                    yield f"{relative}:{number}: CUDA header {target} in a file of the CPU build"


found = list(faults())
print("\n".join(found) or "include graph: ok")
sys.exit(1 if found else 0)
