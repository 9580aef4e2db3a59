#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every header compiles alone, with the flags of the build. CUDA headers only where they can. What
is the first include of a source of the build has been compiled alone by the build."""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(os.environ["TANDEM_SOURCE"])
BUILD = pathlib.Path(os.environ["TANDEM_BUILD"])
FOLDERS = ["kernels", "comm", "kvcache", "parallel", "runtime", "launch"]


commands = json.loads((BUILD / "compile_commands.json").read_text())


def flags():
    """Include paths and definitions of a source of `launch`, which sees every library."""
    command = next(c["command"] for c in commands if c["file"].endswith("launch/main.cc"))
    words = shlex.split(command)
    words = words[1:] if "ccache" in words[0] else words
    kept, skip = [words[0]], False
    for word in words[1:]:
        if skip or word in ("-c",) or word.endswith("main.cc"):
            skip = False
        elif word in ("-o", "-MF", "-MT"):
            skip = True
        elif word not in ("-MD", "-O3"):
            kept.append(word)
    return kept


def first_include(command):
    """What a source includes first; None where headers are precompiled before it, as for tests."""
    if "cmake_pch" in command["command"]:
        return None
    found = re.search(r'^#include [<"](.+)[>"]', pathlib.Path(command["file"]).read_text(), re.M)
    return found and found[1]


def is_cuda(path):
    return "cuda" in str(path) or "nccl" in path.name or "peer" in path.name


def check(arguments):
    command, header, folder = arguments
    source = pathlib.Path(folder) / (str(header).replace("/", "_") + ".cc")
    source.write_text(f'#include "{header}"\n')
    run = subprocess.run(command + ["-fsyntax-only", str(source)], capture_output=True, text=True)
    return None if run.returncode == 0 else f"{header} does not compile alone:\n{run.stderr[:800]}"


headers = [h.relative_to(ROOT) for f in FOLDERS for h in sorted((ROOT / f).rglob("*.h"))]
headers = [h for h in headers if not is_cuda(h.relative_to("."))]
compiled = set(map(first_include, commands))
headers = [h for h in headers if str(h) not in compiled]
with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
    command = flags()
    found = [fault for fault in pool.map(check, [(command, h, folder) for h in headers]) if fault]
print("\n".join(found) or f"headers: {len(headers)} compile alone")
sys.exit(1 if found else 0)
